"""What a run shows: a line that moves in a terminal or notebook, few lines in a log, messages always."""

import ast
import io
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raymkl
from raymkl import ClusteredMKLClassifier, MKLClassifier, StochasticMKLClassifier, kernels
from raymkl.data.progress import LOG_SECONDS, Progress, progress_of, rows_written
from tests.reference import noisy_problem

X, Y = noisy_problem(40, seed=5)


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def screen(self):
        """What is to be seen: a carriage return begins the line again."""
        lines = []
        for line in self.getvalue().split("\n"):
            shown = ""
            for part in line.split("\r"):
                shown = part + shown[len(part) :]
            lines.append(shown.rstrip())
        return lines


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def row(number, gap=0.1, seconds=1.0, **more):
    plan = {
        "rows_per_shard": 40,
        "cache_capacity": 40,
        "expected_peak_bytes": 2**20,
        "cached_columns": 7,
        "support_vectors": 5,
        "tol": 1e-3,
    }
    return {"round": number, "gap": gap, "seconds": seconds, **plan, **more}


def shown(stream, times, per_round=1, close=True):
    """Rounds at the given times (seconds)."""
    clock = Clock()
    progress = Progress(stream, clock)
    for number, moment in enumerate(times, start=1):
        clock.now = 100.0 + moment
        for head in range(per_round):
            progress(row(number, gap=1 / number + head, head=head))
    if close:
        progress.close()
    return progress


def test_a_log_gets_a_line_per_thirty_seconds_and_the_last_one():
    log = io.StringIO()
    shown(log, [0.1 * k for k in range(1000)])
    lines = log.getvalue().splitlines()
    assert "memory plan: 40 rows per shard" in lines[0]
    assert len(lines) == 1 + int(100 / LOG_SECONDS) + 1
    assert "round 1000" in lines[-1] and "\r" not in log.getvalue()
    assert all(line.startswith("[raymkl] ") for line in lines)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=40), st.integers(1, 4))
def test_a_terminal_has_one_line_that_moves_once_a_second_at_most(pauses, per_round):
    terminal, moment, times = Terminal(), 0.0, []
    for pause in pauses:
        moment += pause
        times.append(moment)
    shown(terminal, times, per_round)
    screen = terminal.screen
    assert (
        len(screen) == 3 and "memory plan" in screen[0] and screen[2] == ""
    )  # the line ends, so that a prompt has its own
    assert f"round {len(times):4d}" in screen[1]
    assert ("problems" in screen[1]) == (per_round > 1)
    assert terminal.getvalue().count("\r") <= moment + 2


def test_the_bar_follows_the_gap_and_never_goes_back():
    terminal, clock = Terminal(), Clock()
    progress = Progress(terminal, clock)
    lengths = []
    for number, gap in enumerate([1.0, 0.1, 0.5, 0.01, 0.0315, 0.001, 0.0005], start=1):
        clock.now += 2.0
        progress(row(number, gap))
        lengths.append(terminal.getvalue().rpartition("\r")[2].count("#"))
    progress.close()
    bar = terminal.screen[-2].count("#")
    assert lengths[1:] == sorted(lengths[1:]) and bar == 20
    assert (
        lengths[2] == 6 and lengths[4] == 13
    )  # one and two of three powers of ten, as known one round later


def test_the_worst_of_several_problems_is_shown():
    log = io.StringIO()
    progress = Progress(log, Clock())
    for head, gap in enumerate([0.2, 0.7, 0.1]):
        progress(row(1, gap, head=head))
    progress.close()
    assert "gap 7.00e-01  3 problems" in log.getvalue()


def test_messages_are_lines_above_the_one_that_moves():
    terminal, clock = Terminal(), Clock()
    progress = Progress(terminal, clock)
    progress({"message": "resumed from round 7 of here"})
    progress(row(8))
    progress(row(9))
    progress({"message": "shard 1 lost (ActorDiedError), replaced"})
    clock.now += 3
    progress(row(10))
    progress.close()
    screen = terminal.screen
    assert [line[:30] for line in screen[:3]] == [
        "[raymkl] resumed from round 7 ",
        "[raymkl] memory plan: 40 rows ",
        "[raymkl] shard 1 lost (ActorDi",
    ]
    assert "round   10" in screen[3] and screen[4:] == [""]


def test_a_notebook_updates_one_output(monkeypatch):
    calls = []

    class Handle:
        def update(self, data, raw):
            calls.append(("update", data["text/plain"]))

    def display(data, raw, display_id):
        calls.append(("display", data["text/plain"]))
        return Handle()

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    fake.display = types.ModuleType("IPython.display")
    fake.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    clock = Clock()
    progress = Progress(clock=clock)
    for number in range(1, 5):
        clock.now += 2
        progress(row(number))
    progress.close()
    assert [kind for kind, _ in calls] == ["display", "update", "update", "update"]
    assert "round    4" in calls[-1][1] and "|" in calls[-1][1]


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace()], ids=["no shell", "IPython in a terminal"])
def test_no_notebook(monkeypatch, shell):
    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert Progress().line.notebook is None


def test_a_stream_that_is_not_a_file_is_a_log():
    class Words(list):
        write = list.append

        def flush(self):
            pass

    words = Words()
    shown(words, [0.0, 1.0])
    assert "round    2" in words[-1]


def test_nothing_is_shown_of_a_run_that_never_began():
    terminal = Terminal()
    Progress(terminal).close()
    assert terminal.getvalue() == ""


def test_a_fit_that_fails_ends_its_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    calls = []

    def treacherous(A, B):
        calls.append(1)
        if len(calls) > 12:
            raise ZeroDivisionError("in a kernel")
        return A @ B.T

    kernel = kernels.Custom(treacherous, diag_function=lambda A: (A * A).sum(axis=1))
    MKLClassifier(kernels=[kernels.RBF(), kernels.Linear()], verbose=1, engine="local").fit(X, Y)
    assert terminal.screen[-1] == "" and "gap" in terminal.screen[-2]
    with pytest.raises(ZeroDivisionError):
        for _ in range(20):
            MKLClassifier(kernels=[kernel], verbose=1, engine="local").fit(X, Y)
    assert terminal.screen[-1] == ""


def test_epochs_and_phases_are_lines_like_those_of_rounds():
    log, clock = io.StringIO(), Clock()
    progress = Progress(log, clock)
    for number in range(1, 8):
        clock.now += 10.0
        progress({"epoch": number, "seconds": 10.0 * number, "gap": 1 / number})
    progress.close()
    found = [line.split("epoch")[1].split()[0] for line in log.getvalue().splitlines()]
    assert found == ["3", "6", "7"]
    log = io.StringIO()
    progress = Progress(log, clock)
    row = {"iteration": 2, "phase": "merge", "seconds": 0.5, "bound": -403.4281, "clusters": 3}
    progress({**row, "phase": "mixture"})
    progress(row)
    progress.close()
    assert log.getvalue() == "[raymkl]     0.5 s  iteration   2  merge     bound -403.428  3 clusters\n"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model, words",
    [
        (StochasticMKLClassifier(kernels=kernels.rbf([0.1]), max_iter=2), "epoch    2  gap"),
        (ClusteredMKLClassifier(n_clusters=2, n_features=4, max_iter=2), "final     bound"),
    ],
    ids=["stochastic", "clustered"],
)
def test_every_trainer_tells_the_same_module(model, words, monkeypatch, capsys):
    model.set_params(engine="local", verbose=1, random_state=0).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert words in lines[-1] and all(line.startswith("[raymkl] ") for line in lines)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    model.fit(X, Y)
    assert words in terminal.screen[-2] and len(terminal.screen) == 2
    model.set_params(verbose=0).fit(X, Y)
    assert len(terminal.screen) == 2


def test_nothing_else_writes_to_the_terminal():
    """`verbose` and progress go through one module; the command line alone has answers of its own."""
    root = Path(raymkl.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if path == root / "data" / "progress.py" or path.is_relative_to(root / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = (
                getattr(node, "attr", None) if isinstance(node, ast.Attribute) else getattr(node, "id", None)
            )
            if name in {"print", "stderr", "isatty"}:
                found.append(f"{path.relative_to(root)}:{node.lineno} {name}")
    assert found == []


def test_no_verbose_no_progress():
    assert progress_of(0) is None and isinstance(progress_of(1), Progress) and progress_of(False) is None


def test_rows_that_are_written_move_a_line_in_terminals_alone(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show = rows_written("k.store")
    for done in (10, 20, 30):
        show(done, 30)
    assert terminal.screen == ["[raymkl] k.store: 30 of 30 rows (100%)", ""]
    log = io.StringIO()
    for stream in (log, None):  # a program without a console has no stderr
        monkeypatch.setattr(sys, "stderr", stream)
        rows_written("k.store")(30, 30)
    assert log.getvalue() == ""
