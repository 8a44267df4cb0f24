"""The data: 1 797 real images of handwritten digits, 8 x 8 pixels each, that scikit-learn ships."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

IMAGE_SIZE = 8
CLASSES = 10
TRAINING_IMAGES = 1437
"""Four in five; the last fifth of the set, in its own order, is held out."""

Example = tuple[torch.Tensor, int]


class Digits(Dataset[Example]):
    """Images as float32 of shape (1, 8, 8) with mean 0 and deviation 1 over the training part, and their digits.

    Pixels are kept as the bytes they are stored as and converted one image at a time, as a data set that does
    not fit into memory would have to.
    """

    def __init__(self, *, training: bool) -> None:
        loaded = load_digits()
        images = torch.from_numpy(loaded.images).to(torch.uint8)
        seen = images[:TRAINING_IMAGES].float()
        part = slice(TRAINING_IMAGES) if training else slice(TRAINING_IMAGES, None)
        self._images = images[part]
        self._digits: list[int] = loaded.target[part].tolist()
        self._mean, self._deviation = seen.mean(), seen.std()

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, index: int) -> Example:
        image = (self._images[index].float() - self._mean) / self._deviation
        return image.unsqueeze(0), self._digits[index]


def make_loader(*, training: bool, batch_size: int = 64, seed: int | None = None) -> DataLoader[Example]:
    """Make a loader of one part, in the set's own order, or shuffled in the order that ``seed`` gives.

    The order never comes from the global random state, so two loaders made alike hand out the same batches.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(
        Digits(training=training),
        batch_size=batch_size,
        shuffle=seed is not None,
        generator=generator,
        drop_last=training,
    )
