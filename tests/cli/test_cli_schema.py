"""``stepprof schema``: what it prints holds for what is written."""

import json

import jsonschema
import msgspec
import pytest
from ab_records import ab_record
from sample_records import sample_session

from pytest_stepprof.cli.main import main
from pytest_stepprof.store.directory import Store


def printed(capsys, *arguments):
    assert main(["schema", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["report", "session", "ab"])
def test_each_kind_has_a_schema_that_is_one(capsys, kind):
    schema = printed(capsys, kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert kind in schema["title"]
    assert schema["$id"].startswith("urn:pytest-stepprof:")
    assert printed(capsys) == printed(capsys, "report")


def test_what_is_written_is_what_the_schema_says(tmp_path, capsys):
    store = Store(tmp_path)
    file = store.save_session(sample_session(), {})
    assert main(["show", "--dir", str(tmp_path), "--report=json"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, printed(capsys))
    jsonschema.validate(json.loads(file.read_text()), printed(capsys, "session"))
    jsonschema.validate(json.loads(msgspec.json.encode(ab_record())), printed(capsys, "ab"))
    for kind in ("session", "ab"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(report, printed(capsys, kind))


def test_another_kind_leaves_with_2(capsys):
    with pytest.raises(SystemExit) as left:
        main(["schema", "trace"])
    assert left.value.code == 2
