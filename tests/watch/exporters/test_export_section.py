"""The `[export]` table: mistakes are named, secrets are not written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgefl.base.errors import ConfigError
from edgefl.base.events import Started
from edgefl.job.config.export import Export, Webhook
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.watch.exporters import opening

HOOK = "https://hooks.example.com/services/T0/B0/verysecret"


def run(export: dict[str, Any]) -> RunFile:
    partition = {"kind": "iid", "devices": 2}
    return parse(RunFile, {"task": {"partition": partition}, "export": export}, "run.toml", environment={})


def test_nothing_is_exported_unless_asked_for() -> None:
    assert run({}).export == Export()
    assert run({"tensorboard": {}}).export.tensorboard is not None


@pytest.mark.parametrize(
    ("export", "complaint"),
    [
        ({"webhooks": [{"url": "http://example.com/x"}]}, "http to 'example.com' can be read by the network between"),
        ({"webhooks": [{"url": "ftp://example.com/x"}]}, "export.webhooks.url is no address"),
        ({"webhooks": [{"url": "https://exa mple.com/x"}]}, "export.webhooks.url is no address"),
        ({"webhooks": [{"url": HOOK, "secret": "plain"}]}, "write env:NAME or file:PATH"),
        ({"webhooks": [{"url": HOOK, "urll": 1}]}, "did you mean 'url'?"),
        ({"webhooks": [{"url": HOOK, "events": ["device_awy"]}]}, "export.webhooks.0.events.0"),
        ({"webhooks": [{"url": HOOK, "timeout": 0}]}, "export.webhooks.0.timeout = 0"),
        ({"tensorbord": {}}, "did you mean 'tensorboard'?"),
        ({"mlflow": {"tracking_uri": "https://me:word@example.com"}}, "MLFLOW_TRACKING_PASSWORD"),
        ({"wandb": {"mode": "on"}}, "export.wandb.mode"),
    ],
)
def test_a_mistake_is_named(export: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match="run") as error:
        run(export)
    assert complaint in str(error.value)
    assert "verysecret" not in str(error.value)


def test_http_is_for_this_machine_or_for_who_says_so() -> None:
    assert run({"webhooks": [{"url": "http://127.0.0.1:9/x"}, {"url": "http://localhost/x"}]}).export.webhooks
    assert run({"webhooks": [{"url": "http://10.0.0.7/x", "allow_http": True}]}).export.webhooks


def test_what_is_written_down_holds_no_secret() -> None:
    file = run({"webhooks": [{"url": HOOK, "secret": "env:HOOK_SECRET"}]})
    for text in (file.model_dump_json(), repr(file), json.dumps(file.model_dump(mode="json"))):
        assert "verysecret" not in text
    assert "https://hooks.example.com/..." in file.model_dump_json()


def test_an_address_that_was_not_written_down_is_not_called(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written_down = run({"webhooks": [{"url": HOOK}]}).model_dump(mode="json")
    again = parse(RunFile, written_down, "the journal", environment={})
    exporters = opening.Exporters(again.export, tmp_path, {})
    exporters(Started("sensors", "1f2e"))
    assert exporters.asides == []
    assert "its address is in the run file only" in caplog.text


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"{HOOK}\nmore\n")
    hook = Webhook(url=f"file:{tmp_path}/hook", secret="env:HOOK_SECRET")
    assert hook.address({}) == HOOK
    assert hook.key({"HOOK_SECRET": "word"}) == b"word"
    with pytest.raises(ConfigError, match="the environment has no variable HOOK_SECRET"):
        hook.key({})
    with pytest.raises(ConfigError, match="cannot be read"):
        Webhook(url=f"file:{tmp_path}/none").address({})
    (tmp_path / "plain").write_text("http://example.com/x\n")
    with pytest.raises(ConfigError, match="use https"):
        Webhook(url=f"file:{tmp_path}/plain").address({})


def test_a_package_that_is_not_there_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'edgefl\[wandb\]'"):
        opening.check(run({"wandb": {}}).export)
