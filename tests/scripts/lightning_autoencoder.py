"""Lightning, "Lightning in 15 minutes": an autoencoder, its own training step, its own trainer."""

import lightning as L
import torch
from torch import nn, optim
from torch.utils.data import DataLoader

from placer.integrations.lightning import trainer_args  # + placer

encoder = nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 3))
decoder = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 28 * 28))
losses = []


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        x = batch.view(batch.size(0), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        losses.append(outputs["loss"].item())

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(7, verbose=False)
for layer in (encoder[0], encoder[2], decoder[0], decoder[2]):
    layer.reset_parameters()
autoencoder = LitAutoEncoder(encoder, decoder)
train_loader = DataLoader(torch.rand(64, 1, 28, 28), batch_size=16, shuffle=True)
trainer = L.Trainer(
    **trainer_args(autoencoder, train_loader, max_epochs=1),  # without placer: accelerator="cpu", max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model=autoencoder, train_dataloaders=train_loader)
