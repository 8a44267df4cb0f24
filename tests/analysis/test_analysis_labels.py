"""Labels that must not be stored, labels that must not be refused, and text that is safe to print."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_stepprof.analysis.labels import printable, refused_label

# Joined from parts, so that no scanner of repositories takes the made-up ones for real ones.
_JWT = "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"

_ADDRESSES = [
    "load from 10.1.2.3",
    "10.1.2.3:29500",
    "rank0@192.168.0.17",
    "host=172.16.0.9, port 80",
    "sent to 203.0.113.7.",
    "store 2001:db8::8a2e:370:7334",
    "[fe80::1]:8080",
    "fe80::1%eth0",
    "::1",
    "::ffff:10.0.0.1",
    "fd12:3456:789a:1::1",
    "https://example.com/model",
    "s3://bucket/key",
    "file:///data/x",
    "tcp://localhost:29500",
    "ask jane.doe@example.com",
    "localhost:8080",
    "db.internal.example.com:5432",
    "trainer.cluster.local:80",
    "worker-3.pool:29500",
    "<Model object at 0x7f3a2b1c4d50>",
    "ptr 0X7FFDE0",
    "nic 00:1a:2b:3c:4d:5e",
    "step_10.0.0.17",
    "rank0_10.0.0.17",
    "rank-10.0.0.17",
    "buf_0x7ffe12345678",
    "ptr0x7ffe12345678",
]
_SECRETS = [
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11ABCDEFG0" * 4,
    "glpat-" + "x1Y2z3" * 4,
    "hf_" + "AbCdEfGh" * 4,
    "sk-" + "a1B2c3D4" * 5,
    "sk-proj-" + "a1B2c3D4" * 5,
    "key AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-abcdef",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    _JWT,
    "token=" + "9f86d081884c7d659a2feaa0c55ad015",
    "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "q8Zr2Xv7Tn4Lk9Wp1Bc6Hd3Fs5Gj0MyQ",
    "k3j9x2m5q8w1z7t4r6v0b3n9c5p2h8f1",
    "request 123e4567-e89b-12d3-a456-426614174000",
    "Authorization: Bearer " + "abcd1234efgh",
    "-----BEGIN RSA PRIVATE KEY" + "-----MIIEow",
    "-----BEGIN PRIVATE KEY" + "-----",
    "API_PASSWORD=" + "hunter2xyz",
    "step DB_SECRET=" + "s3cr3t",
    "SECRET_KEY = " + "abc",
    "HF_TOKEN=" + "8abc",
]
_PATHS = [
    "/home/jane/data",
    "read /mnt/project/train.bin",
    "cfg=/etc/passwd",
    "'/srv/models/a.pt'",
    "open(/tmp/x)",
    "/root",
    "/a/b",
    "C:\\Users\\jane",
    "read D:/data/train",
    "\\\\server\\share\\x",
    "~/data",
    "~jane/data",
    "run_/home/jane/secret",
    "ckpt_/home/jane/x",
    "HtoD/home/jane/x",
    "read_/mnt/project",
    "a-/srv/x",
    "../jane/secret/train.py",
    "open ..\\jane\\x",
]
_FINE = [
    "forward",
    "Optimizer.step#SGD.step",
    "## forward ##",
    "aten::conv2d",
    "layer1.0/conv",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "read batch (128x3)",
    "a/b",
    "stepprof: read batch",
    "read / transfer",
    "samples/s",
    "ms/step",
    "train 50/50",
    "",
    " ",
    "größe",
    "前向",
    'my "quoted" label',
    "loss=0.5",
    "v1.2.3",
    "torch 2.13.0",
    "features.0.1.2.3",
    "lr 1e-3",
    "epoch 1/10, step 3",
    "epoch:12",
    "batch:1024",
    "batch-size:1024",
    "encoder.layer:12",
    "encoder.layer.11.attention:16",
    "train.py:120",
    "model.cpp:2048",
    "x[::2]",
    "x[1::2]",
    "x[::-1]",
    "c10::add",
    "c10d::allreduce_",
    "c10d::add",
    "aten::add",
    "a::b",
    "dead::beef",
    "feed::add",
    "std::vector<float>",
    "12:30:45",
    "0xff",
    "mask 0x1f",
    "hf_forward",
    "hf_transformers_generation_forward_pass",
    "sk-learn step",
    "sk-learn-compatible-estimator-forward",
    "key lookup",
    "backward ~ twice",
    "a ~ b",
    "x @ y",
    "matmul@fp16",
    "user@step",
    "v1.2.3.4",
    "layer1.0.1.2",
    "stepprof: module encoder1.0.1.2",
    "MAX_TOKEN=128",
    "token=128",
    "10x200000",
    "read batch...",
    "x..y",
    "lib/data/x",
    "conv_64x3x7x7_stride2_pad3_groups1_dilation1",
    "layer1_Conv2d_BatchNorm2d_ReLU_MaxPool2d_Linear_x4",
    "ScaledDotProductFlashAttentionForCpuBackward0",
    "autograd::engine::evaluate_function: ScaledDotProductFlashAttentionForCpuBackward0",
    "torch::autograd::AccumulateGrad",
    "TransformerEncoderLayer3SelfAttentionDropout2",
    "DistributedDataParallel.forward",
    "nn.Module: ResNet_0",
    "Torch-Compiled Region: 0/0",
    "ProfilerStep#2",
    "00000000000000000000000000000000",
    "a" * 200,
    "c: fast",
    "step:/fast",
    "//",
    "/",
    "/forward",
    "...",
]


@pytest.mark.parametrize("label", _ADDRESSES)
def test_addresses_are_refused(label: str) -> None:
    reason = refused_label(label)
    assert reason is not None
    assert reason.startswith("it looks like ")


@pytest.mark.parametrize("label", _SECRETS)
def test_tokens_are_refused(label: str) -> None:
    assert refused_label(label) == "it looks like a token or another secret"


@pytest.mark.parametrize("label", _PATHS)
def test_private_paths_are_refused(label: str) -> None:
    reason = refused_label(label)
    assert reason is not None
    assert "path" in reason


@pytest.mark.parametrize("label", _FINE)
def test_ordinary_labels_are_not_refused(label: str) -> None:
    assert refused_label(label) is None


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ("10.1.2.3", "an IP address"),
        ("2001:db8::1", "an IP address"),
        ("http://x", "a URL"),
        ("a@b.de", "an e-mail address"),
        ("localhost:8080", "a host name with a port"),
        ("0x7f0011223344", "a memory address"),
        ("00:1a:2b:3c:4d:5e", "a hardware address"),
        ("/home/jane", "an absolute path"),
        ("~/x", "a path of a home directory"),
        ("\\\\server\\share", "a network path"),
    ],
)
def test_the_reason_says_what_it_looks_like(label: str, what: str) -> None:
    assert refused_label(label) == f"it looks like {what}"


@pytest.mark.parametrize("label", [*_ADDRESSES, *_SECRETS, *_PATHS])
def test_the_reason_does_not_repeat_the_label(label: str) -> None:
    reason = refused_label(label)
    assert reason is not None
    assert label not in reason
    assert max(label.split(), key=len) not in reason


@given(st.ip_addresses(v=4), st.sampled_from(["{}", "from {}", "({})", "{}:80", "a={},b"]))
def test_any_ipv4_address_is_refused(address: object, around: str) -> None:
    assert refused_label(around.format(address)) is not None


@given(st.ip_addresses(v=6, network="2000::/3"), st.sampled_from(["{}", "from {}", "[{}]:80"]))
def test_any_global_ipv6_address_is_refused(address: object, around: str) -> None:
    assert refused_label(around.format(address)) is not None


@given(st.text(st.sampled_from("0123456789abcdef"), min_size=40, max_size=64))
def test_long_hexadecimal_of_many_digits_is_refused(text: str) -> None:
    refused = refused_label(text) is not None
    assert refused or len(set(text)) < 8


@given(st.text(max_size=300))
def test_any_text_gets_an_answer(text: str) -> None:
    assert refused_label(text) is None or refused_label(text)


@given(st.lists(st.sampled_from(["forward", "Conv2d", "layer1", "step", "aten", "loss"]), min_size=1, max_size=12))
def test_names_made_of_words_are_not_refused(words: list[str]) -> None:
    for joint in (".", "_", " ", "::", "#", " / "):
        assert refused_label(joint.join(words)) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("forward", "forward"),
        ("größe 前向 👩‍💻", "größe 前向 👩‍💻"),
        ("two\nlines", "two\\x0alines"),
        ("a\tb\r", "a\\x09b\\x0d"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("nul\x00", "nul\\x00"),
        ("\x7f", "\\x7f"),
        ("a\u202eb", "a\\u202eb"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\u200f", "\\u200f"),
        ("\u2028", "\\u2028"),
        ("lone \ud800", "lone \\ud800"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(codec=None), max_size=60))
@example("\ud800\udfff\x1b]0;title\x07")
def test_escaped_text_can_be_stored_and_holds_no_controls(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    assert printable(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=60))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert printable(text) == text
