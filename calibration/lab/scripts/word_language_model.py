"""After pytorch/examples, word_language_model/main.py: an LSTM over a text in columns, without a data loader."""

import argparse
import math

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--batch_size", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(1111)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ntokens, ninp, nhid, nlayers = 6_000, 200, 200, 2
frequencies = 1 / torch.arange(1, ntokens + 1)  # Zipf's law


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntokens, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=0.2)
        self.decoder = nn.Linear(nhid, ntokens)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, ntokens)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(nlayers, bsz, nhid), weight.new_zeros(nlayers, bsz, nhid)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous().to(device)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


train_data = batchify(torch.multinomial(frequencies, 140_000, replacement=True), args.batch_size)
val_data = batchify(torch.multinomial(frequencies, 10_000, replacement=True), 10)
model = RNNModel().to(device)
criterion = nn.NLLLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=20)


def evaluate(source):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(source) - 1)


def train(epoch):
    model.train()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if batch % 50 == 0:
            print(f"| epoch {epoch} | batch {batch} | loss {loss.item():5.2f} | ppl {math.exp(loss.item()):8.2f}")


for epoch in range(1, args.epochs + 1):
    train(epoch)
    print(f"| end of epoch {epoch} | valid loss {evaluate(val_data):5.2f}")
