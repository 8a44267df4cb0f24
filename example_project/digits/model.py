"""The model: two convolutions with batch normalisation, then dropout before the last layer."""

import torch
from torch import nn

from digits.data import CLASSES, IMAGE_SIZE


class DigitClassifier(nn.Module):
    """Maps images of shape (N, 1, 8, 8) to logits of shape (N, 10)."""

    def __init__(self, channels: int = 32, dropout: float = 0.25) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * channels * (IMAGE_SIZE // 2) ** 2, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(images))
