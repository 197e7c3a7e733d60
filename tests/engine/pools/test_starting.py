"""Starting Ray: as the user has set it up, and what happens is told to those who watch, or to the log."""

import logging
from types import SimpleNamespace

import pytest

ray_session = pytest.importorskip("raymkl.engine.pools.ray_session")


@pytest.mark.parametrize(
    "context, words",
    [
        (
            SimpleNamespace(address_info={"gcs_address": "head:6379"}, dashboard_url="head:8265"),
            "head:6379, dashboard at head:8265",
        ),
        (SimpleNamespace(address_info={"gcs_address": "head:6379"}, dashboard_url=""), "now at head:6379"),
        (SimpleNamespace(), "now at a server of it"),
    ],
)
def test_ray_is_started_as_the_user_has_set_it_up(monkeypatch, caplog, context, words):
    calls = []
    monkeypatch.setattr(ray_session.ray, "is_initialized", lambda: bool(calls))
    monkeypatch.setattr(
        ray_session.ray, "init", lambda *given, **named: calls.append((given, named)) or context
    )
    with caplog.at_level(logging.INFO, "raymkl"):
        ray_session.ensure_ray()
        ray_session.ensure_ray()
    assert calls == [
        ((), {})
    ]  # no address, no dashboard, no logs are switched on or off behind anybody's back
    assert [record.name for record in caplog.records] == ["raymkl"] and caplog.messages[0].endswith(words)


def test_what_happens_is_a_warning_where_nobody_watches(caplog):
    shown = []
    with caplog.at_level(logging.INFO, "raymkl"):
        ray_session.say(None, "shard 1 lost")
        ray_session.say(shown.append, "shard 2 lost")
    assert shown == [{"message": "shard 2 lost"}]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "shard 1 lost"),
        ("INFO", "shard 2 lost"),
    ]
