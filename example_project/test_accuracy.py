"""An ordinary test: does the classifier learn at all? stepprof leaves it alone."""

import torch
from digits.data import make_loader
from digits.model import DigitClassifier
from digits.train import accuracy, make_optimizer, train


def test_recognises_digits_it_has_not_seen() -> None:
    torch.manual_seed(0)
    device = torch.device("cpu")
    model = DigitClassifier()
    train(model, make_optimizer(model), make_loader(training=True, seed=0), device, epochs=6)
    assert accuracy(model, make_loader(training=False), device) > 0.9
