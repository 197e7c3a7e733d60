"""The service behind a tuned search, without Ray: trials begin, report, pause, stop and fail, each for
itself.
"""

import threading

import numpy as np
import pytest
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold, cross_val_score

from raymkl import MKLClassifier, kernels
from raymkl.search import worker as worker_module
from raymkl.search.service import SearchService
from tests.processes import wait_for
from tests.reference import noisy_problem

BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
X, Y = noisy_problem(90)
SPLITS = list(StratifiedKFold(3).split(X, Y))


def model(**params):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **params})


@pytest.fixture
def services():
    """A maker of services that are closed at the end."""
    made = []

    def make(estimator=None, y=Y, splits=SPLITS, scoring="roc_auc", **more):
        made.append(SearchService(estimator or model(), X, y, splits, get_scorer(scoring), **more))
        return made[-1]

    yield make
    for service in made:
        service.close()
        assert not service.worker.is_alive()


def until(condition):
    """Wait for the worker's thread."""
    assert wait_for(condition, 30), "the service did not get there"


def reports_of(service, name):
    found = [service.next_report(name)]
    while not found[-1]["done"]:
        found.append(service.next_report(name))
    return found


@pytest.mark.parametrize(
    "setting",
    [{"C": 0.3}, {"C": 3.0, "p": 2.0}, {"p": 4.0}, {"kernels": kernels.rbf([0.1]), "C": 2.0}],
    ids=str,
)
def test_the_last_report_is_the_cross_validated_score(services, setting):
    service = services()
    service.start("one", setting)
    reports = reports_of(service, "one")
    last = reports[-1]
    expected = cross_val_score(model(**setting), X, Y, cv=SPLITS, scoring="roc_auc")
    assert last["score"] == pytest.approx(expected.mean(), abs=1e-9) and last["score_std"] == pytest.approx(
        expected.std(), abs=1e-9
    )
    assert len(reports) > 1 and last["gap"] <= 1e-6 < reports[0]["gap"]
    assert [report["round"] for report in reports] == sorted({report["round"] for report in reports})


def test_several_classes_with_shared_weights(services):
    y = np.arange(90) % 3
    splits = list(StratifiedKFold(3).split(X, y))
    service = services(model(shared_weights=True, tol=1e-5), y=y, splits=splits, scoring="accuracy")
    for name, C in (("a", 0.1), ("b", 1.0)):
        service.start(name, {"C": C})
    for name, C in (("a", 0.1), ("b", 1.0)):
        expected = cross_val_score(model(shared_weights=True, tol=1e-5, C=C), X, y, cv=splits)
        assert reports_of(service, name)[-1]["score"] == pytest.approx(expected.mean(), abs=0.02)


def test_trials_share_one_set_of_blocks_and_leave_nothing(services):
    service = services()
    for k in range(5):
        service.start(str(k), {"C": 10.0 ** (k - 2), "p": 1.0 + k / 4})
    for k in range(5):
        reports_of(service, str(k))
    until(lambda: service.active_heads() == 0)
    assert len(service.rooms) == 1
    coordinator = next(iter(service.rooms.values())).coordinator
    assert not coordinator.journal.results and not coordinator.peek.wanted and not coordinator.journal.history


@pytest.mark.usefixtures("small_working_sets")
def test_stopping_a_trial_frees_its_heads(services):
    service = services()
    service.start("stays", {"C": 1.0})
    service.start("goes", {"C": 30.0})
    service.next_report("stays")
    service.next_report("goes")
    # Nobody reads, so both pause: what is active now stays active.
    until(lambda: not service._runnable())
    goes = [h for h in service.trials["goes"].heads if h in service.trials["goes"].room.coordinator.solvers]
    before = service.active_heads()
    assert goes
    service.stop("goes")
    until(lambda: service.active_heads() == before - len(goes))
    with pytest.raises(RuntimeError, match="trial goes is not known here"):
        service.next_report("goes")
    assert reports_of(service, "stays")[-1]["gap"] <= 1e-6


@pytest.mark.usefixtures("small_working_sets")
def test_a_trial_that_nobody_reads_pauses(services):
    service = services()
    service.start("idle", {"C": 30.0})
    until(lambda: service.trials["idle"].room is not None and not service._runnable())
    coordinator = service.trials["idle"].room.coordinator
    assert len(service.trials["idle"].reports) == worker_module.UNREAD and coordinator.busy
    rounds = coordinator.journal.round
    service.start("read", {"C": 0.1})
    reports_of(service, "read")  # others go on meanwhile
    assert len(service.trials["idle"].reports) == worker_module.UNREAD
    assert coordinator.journal.round > rounds and service.active_heads() > 0
    assert reports_of(service, "idle")[-1]["done"]


def test_a_trial_that_is_never_heard_of_again_is_dropped(services, monkeypatch):
    monkeypatch.setattr(worker_module, "LEASE_S", 0.3)
    service = services()
    service.start("silent", {"C": 30.0})
    until(lambda: "silent" not in service.trials and service.active_heads() == 0)


def test_mistakes_of_a_trial_are_its_own(services):
    service = services()
    service.start("good", {"C": 1.0})
    for name, setting, message in (
        ("bad C", {"C": -1.0}, "C must be"),
        ("bad p", {"p": "large"}, "p must be"),
        ("no kernels", {"kernels": []}, "empty list"),
        ("bank of each fold", {"kernels": None}, "kernels=None"),
        ("unknown", {"Q": 1.0}, "Q"),
    ):
        service.start(name, setting)
        with pytest.raises(ValueError, match=message):
            service.next_report(name)
    assert reports_of(service, "good")[-1]["done"]


def test_a_scorer_that_fails_ends_the_trial(services):
    service = services(scoring="neg_log_loss")
    service.start("one", {"C": 1.0})
    with pytest.raises(AttributeError, match="predict_proba"):
        service.next_report("one")
    until(lambda: service.active_heads() == 0)


def test_names(services):
    service = services()
    with pytest.raises(RuntimeError, match="trial x is not known here"):
        service.next_report("x")
    service.stop("x")  # and nothing happens
    service.start("x", {"C": 30.0})
    service.start("x", {"C": 0.1})  # a trial that was restarted
    expected = cross_val_score(model(C=0.1), X, Y, cv=SPLITS, scoring="roc_auc").mean()
    assert reports_of(service, "x")[-1]["score"] == pytest.approx(expected, abs=1e-9)
    with pytest.raises(RuntimeError, match="done and has no more reports"):
        service.next_report("x")
    until(lambda: service.active_heads() == 0)


def test_whoever_waits_is_told_that_a_trial_was_stopped(services):
    service = services()
    with service.changed:  # the worker stands still as long as this is held
        service.start("one", {"C": 1.0})
        heard = []

        def wait():
            try:
                while True:
                    service.next_report("one")
            except RuntimeError as error:
                heard.append(str(error))

        waiting = threading.Thread(target=wait)
        waiting.start()
        service.stop("one")
    waiting.join(timeout=600)
    assert not waiting.is_alive() and "not known here" in heard[0]


def test_closing_tells_everybody(services):
    service = services()
    service.start("one", {"C": 30.0})
    service.next_report("one")
    service.close()
    with pytest.raises(RuntimeError, match="the search is over"):
        service.next_report("one")


def test_blocks_that_nobody_uses_are_let_go(services):
    service = services(model(tol=1e-2))
    for k in range(6):
        service.start(str(k), {"kernels": kernels.rbf([0.1 * (k + 1)])})
        reports_of(service, str(k))
        service.stop(str(k))
    until(lambda: not service.wishes)
    assert len(service.rooms) <= worker_module.MOST_IDLE_ROOMS + 1
    # Equal kernels are the same blocks, whatever objects they are.
    rooms = len(service.rooms)
    service.start("again", {"kernels": kernels.rbf([0.1 * 6])})
    reports_of(service, "again")
    assert len(service.rooms) == rooms


@pytest.mark.parametrize(
    "setting", [{"C": 0.3}, {"C": 3.0, "p": 2.0}, {"p": 4.0, "normalize": "trace"}], ids=str
)
def test_the_model_of_a_trial_is_fitted_to_all_rows(services, setting):
    service = services()
    service.start("one", setting)
    reports_of(service, "one")
    found, expected = service.model("one"), model(**setting).fit(X, Y)
    assert found.get_params() == expected.get_params() and found.duality_gap_ <= 1e-6
    assert np.abs(found.decision_function(X) - expected.decision_function(X)).max() < 1e-2
    assert found.history_ and {row["head"] for row in found.history_} == {0}
    until(lambda: service.active_heads() == 0)


def test_the_model_of_several_classes_with_weights_of_rows(services):
    y, weights = np.arange(90) % 3, np.linspace(0.5, 2.0, 90)
    splits = list(StratifiedKFold(3).split(X, y))
    service = services(
        model(shared_weights=True, tol=1e-5), y=y, splits=splits, scoring="accuracy", sample_weight=weights
    )
    service.start("one", {"C": 0.7})
    reports_of(service, "one")
    expected = model(shared_weights=True, tol=1e-5, C=0.7).fit(X, y, weights)
    assert service.model("one").primal_objective_ == pytest.approx(expected.primal_objective_, rel=2e-5)


@pytest.mark.usefixtures("small_working_sets")
def test_the_model_of_a_trial_under_way_says_how_far_it_is(services):
    service = services(model(tol=1e-9))
    service.start("one", {"C": 30.0})
    service.next_report("one")
    until(lambda: not service._runnable())
    early = service.model("one")
    assert not early.converged_ and early.n_iter_ <= service.trials["one"].rounds
    # Its gap is true of the model as it is.
    values, losses = early.decision_function(X), np.where(early.classes_[1] == Y, 1.0, -1.0)
    primal = 30.0 * np.maximum(1 - losses * values, 0).sum()
    assert primal < early.primal_objective_ and 1e-9 < early.duality_gap_ < 1
    assert reports_of(service, "one")[-1]["gap"] <= 1e-9


@pytest.mark.usefixtures("small_working_sets")
def test_a_trial_goes_on_from_its_state_elsewhere(services):
    first, second = services(model(tol=1e-9)), services(model(tol=1e-9))
    first.start("one", {"C": 30.0})
    whole = reports_of(first, "one")
    state = first.state("one")
    assert state["rounds"] == len(whole) and len(state["heads"]) == 3
    second.start("two", {"C": 30.0}, state)
    again = reports_of(second, "two")
    assert len(again) < len(whole) / 2
    assert again[-1]["score"] == pytest.approx(whole[-1]["score"], abs=1e-6)
    # Another setting, as after a perturbation, begins with what fits it; other kernels begin anew.
    for name, setting in (
        ("perturbed", {"C": 1.0, "p": 1.0}),
        ("others", {"kernels": kernels.rbf([0.1]), "C": 2.0}),
    ):
        second.start(name, setting, state)
        expected = cross_val_score(model(**setting), X, Y, cv=SPLITS, scoring="roc_auc").mean()
        assert reports_of(second, name)[-1]["score"] == pytest.approx(expected, abs=1e-3)


class Counted:
    """A reservation that knows when it was taken and given back."""

    def __init__(self):
        self.taken, self.log = False, []

    def take(self):
        if not self.taken:
            self.taken = True
            self.log.append("taken")

    def release(self):
        if self.taken:
            self.taken = False
            self.log.append("released")


def test_a_service_without_trials_lets_go_and_begins_again(services):
    reservation = Counted()
    service = services(reservation=reservation, idle_s=0.2)
    for _ in range(2):
        service.start("one", {"C": 1.0})
        assert reports_of(service, "one")[-1]["done"]
        assert service.rooms and reservation.taken
        service.stop("one")
        until(lambda: not service.rooms and not reservation.taken)
    assert reservation.log == ["taken", "released"] * 2


def test_models_of_several_trials_at_once(services):
    service = services()
    settings = {str(k): {"C": 10.0 ** (k - 1)} for k in range(4)}
    for name, setting in settings.items():
        service.start(name, setting)
    for name in settings:
        reports_of(service, name)
    start, found = threading.Barrier(len(settings)), {}

    def ask(name):
        start.wait()
        found[name] = service.model(name)

    askers = [threading.Thread(target=ask, args=(name,)) for name in settings]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    for name, setting in settings.items():
        expected = model(**setting).fit(X, Y).primal_objective_
        assert found[name].primal_objective_ == pytest.approx(expected, rel=2e-5)
