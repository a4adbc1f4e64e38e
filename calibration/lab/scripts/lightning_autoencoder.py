"""After Lightning, "Lightning in 15 minutes": an autoencoder with its training and validation step."""

import argparse
import logging
import warnings

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn, optim, utils

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
L.seed_everything(1)

encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        z = self.encoder(x)
        x_hat = self.decoder(z)
        loss = nn.functional.mse_loss(x_hat, x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


digits = load_digits()
images = nn.functional.interpolate(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, size=(28, 28))
dataset = utils.data.TensorDataset(images.repeat(30, 1, 1, 1), torch.tensor(digits.target).repeat(30))
train_set, val_set = utils.data.random_split(dataset, [0.9, 0.1])
train_loader = utils.data.DataLoader(train_set, batch_size=32, shuffle=True)
val_loader = utils.data.DataLoader(val_set, batch_size=32)

autoencoder = LitAutoEncoder(encoder, decoder)
trainer = L.Trainer(max_epochs=args.epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(autoencoder, train_loader, val_loader)
print(f"val_loss {trainer.callback_metrics['val_loss']:.4f}")
