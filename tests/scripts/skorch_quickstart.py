"""skorch, "Quickstart": a module in a scikit-learn pipeline."""

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

from placer.integrations.skorch import ChooseOnFit  # + placer

torch.manual_seed(0)
X, y = make_classification(200, 20, n_informative=10, random_state=0)
X, y = X.astype(np.float32), y.astype(np.int64)


class MyModule(nn.Module):
    def __init__(self, num_units=10, nonlin=nn.ReLU()):  # noqa: B008 - the documentation's own
        super().__init__()
        self.dense0 = nn.Linear(20, num_units)
        self.nonlin = nonlin
        self.dropout = nn.Dropout(0.5)
        self.dense1 = nn.Linear(num_units, num_units)
        self.output = nn.Linear(num_units, 2)

    def forward(self, X, **kwargs):
        X = self.dropout(self.nonlin(self.dense0(X)))
        return torch.softmax(self.output(self.nonlin(self.dense1(X))), dim=-1)


net = NeuralNetClassifier(
    MyModule,
    max_epochs=3,
    lr=0.1,
    verbose=0,
    iterator_train__shuffle=True,
    callbacks=[("placer", ChooseOnFit())],  # + placer
)
pipe = Pipeline([("scale", StandardScaler()), ("net", net)])
pipe.fit(X, y)
losses = pipe["net"].history[:, "train_loss"]
placement = dict(pipe["net"].callbacks_)["placer"].placement_  # + placer
