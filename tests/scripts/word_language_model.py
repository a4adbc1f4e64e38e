"""pytorch/examples, word_language_model: an LSTM whose hidden state goes from batch to batch."""

import torch
from torch import nn

import placer  # + placer

torch.manual_seed(1)
ntokens, nhid, bptt, batch_size = 50, 16, 5, 4
corpus = torch.randint(0, ntokens, (61, batch_size))


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntokens, nhid)
        self.rnn = nn.LSTM(nhid, nhid, 2, dropout=0.2)
        self.decoder = nn.Linear(nhid, ntokens)
        self.decoder.weight = self.encoder.weight  # tied

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return torch.log_softmax(self.decoder(self.drop(output)).view(-1, ntokens), dim=1), hidden

    def init_hidden(self):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch_size, nhid), weight.new_zeros(2, batch_size, nhid)


model = RNNModel()
criterion = nn.NLLLoss()
placement = placer.choose(model, batch=(corpus[:bptt], model.init_hidden()), loss=lambda o: o[0].mean())  # + placer
corpus = placement.to(corpus)  # + placer

losses = []
hidden = model.init_hidden()
for i in range(0, corpus.size(0) - 1 - bptt, bptt):
    data, targets = corpus[i : i + bptt], corpus[i + 1 : i + 1 + bptt].view(-1)
    model.zero_grad()
    hidden = tuple(h.detach() for h in hidden)
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-5.0)
    losses.append(loss.item())
