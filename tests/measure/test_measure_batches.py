import pytest
import torch
from fakes import FakeClock

from pytest_stepprof.errors import BatchError, UsageError
from pytest_stepprof.measure.batches import Exhausted, LoaderFeed, MemoryFeed, NoBatches, feed_of, read_first


class SlowLoader:
    """A loader whose iterator takes 70 ns to make."""

    def __init__(self, clock, batches):
        self.clock = clock
        self.batches = batches
        self.iterators = 0

    def __iter__(self):
        self.clock.advance(70)
        self.iterators += 1
        return iter(self.batches)


def reads(feed, count):
    return [feed.read() for _ in range(count)]


def test_no_batches_need_no_iterator():
    feed = feed_of(None, FakeClock(), replayed=3)
    assert isinstance(feed, NoBatches)
    assert feed.start() is None
    assert feed.description == "none"


@pytest.mark.parametrize("batches", [["a", "b"], ("a", "b")])
def test_batches_in_memory_go_round_and_begin_again_at_batch_0(batches):
    feed = feed_of(batches, FakeClock(), replayed=3)
    assert isinstance(feed, MemoryFeed)
    assert feed.start() is None
    assert reads(feed, 3) == ["a", "b", "a"]
    feed.start()
    assert reads(feed, 1) == ["a"]


def test_a_loader_is_iterated_anew_at_every_start_and_the_making_is_timed():
    clock = FakeClock()
    loader = SlowLoader(clock, ["a", "b"])
    feed = feed_of(loader, clock, replayed=3)
    assert isinstance(feed, LoaderFeed)
    assert feed.start() == 70
    assert reads(feed, 1) == ["a"]
    assert feed.start() == 70
    assert reads(feed, 2) == ["a", "b"]
    with pytest.raises(Exhausted):
        feed.read()
    assert loader.iterators == 2


def test_a_data_loader_says_where_its_batches_come_from():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(8, 2)), batch_size=4)
    feed = feed_of(loader, FakeClock(), replayed=3)
    assert feed.description == "torch.utils.data.dataloader.DataLoader of TensorDataset, batch_size=4, num_workers=0"


class NumbersWithoutEnd(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(9))


@pytest.mark.parametrize(
    ("batches", "per_pass"),
    [
        (torch.utils.data.DataLoader(range(10), batch_size=4), 3),
        (torch.utils.data.DataLoader(range(10), batch_size=4, drop_last=True), 2),
        (torch.utils.data.DataLoader(NumbersWithoutEnd()), None),
        (range(7), 7),
        (SlowLoader(FakeClock(), []), None),
        ([1, 2], None),
        (iter([1, 2, 3]), None),
        (None, None),
    ],
)
def test_a_pass_has_a_length_where_it_ends_and_its_loader_knows_it(batches, per_pass):
    assert feed_of(batches, FakeClock(), replayed=3).batches_per_pass == per_pass


def test_the_first_batch_of_an_empty_pass_is_an_error():
    feed = feed_of(SlowLoader(FakeClock(), []), FakeClock(), replayed=3)
    feed.start()
    with pytest.raises(BatchError, match="gave no batch on a new pass"):
        read_first(feed)


def test_an_iterator_that_can_be_used_once_is_replayed_from_its_first_batches():
    feed = feed_of((letter for letter in "abcdef"), FakeClock(), replayed=3)
    assert reads(feed, 4) == ["a", "b", "c", "a"]
    assert "first 3 batches" in feed.description


def test_too_few_batches_in_an_iterator_name_both_numbers():
    with pytest.raises(BatchError, match="needed 9 batches, got 2"):
        feed_of(iter([1, 2]), FakeClock(), replayed=9)


@pytest.mark.parametrize("batches", [[], ()])
def test_no_batch_at_all_is_an_error(batches):
    with pytest.raises(BatchError, match="is empty"):
        feed_of(batches, FakeClock(), replayed=3)


@pytest.mark.parametrize("batches", [torch.zeros(4), {"input": 1}, "text", b"bytes"])
def test_one_batch_in_place_of_batches_is_an_error_that_shows_how_to_write_it(batches):
    with pytest.raises(UsageError, match=r"Write batches=\[batch\]"):
        feed_of(batches, FakeClock(), replayed=3)


def test_what_cannot_be_iterated_is_an_error():
    with pytest.raises(UsageError, match="is a int; expected an iterable"):
        feed_of(3, FakeClock(), replayed=3)
