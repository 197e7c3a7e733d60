"""The command line: `raymkl demo`."""

from __future__ import annotations

import time

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="raymkl")
def main() -> None:
    """Multiple kernel learning, exact and certified, from a laptop to a Ray cluster."""


@main.command(epilog="Example: raymkl demo --engine ray")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where to train.")
@click.option("--p", "p", type=float, default=4 / 3, help="Block norm over kernels: 1 sparse, 2 plain sum.  [default: 4/3]")
@click.option("--out", type=click.Path(dir_okay=False), default=None, help="Write the trained model to this file.")
def demo(engine: str, p: float, out: str | None) -> None:
    """Tell odd from even handwritten digits with eight kernels over three views (scikit-learn's bundled data, no network)."""
    from .models.classifier import MKLClassifier

    train, test, y_train, y_test, bank = demo_problem()
    click.echo(f"digits: {len(y_train)} images to learn from, {len(y_test)} to test on, {len(bank)} kernels over 3 views; engine {engine}")
    started = time.perf_counter()
    try:
        model = MKLClassifier(kernels=bank, C=10.0, p=p, normalize="multiplicative", engine=engine).fit(train, y_train)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    seconds = time.perf_counter() - started
    uniform = MKLClassifier(kernels=bank, C=10.0, p=2, normalize="multiplicative", engine="local").fit(train, y_train)
    click.echo(f"trained in {seconds:.1f} s, {model.n_iter_} rounds, {len(model.support_)} support vectors")
    click.echo(f"accuracy      {model.score(test, y_test):.4f}   (uniform sum of the kernels {uniform.score(test, y_test):.4f})")
    click.echo(f"duality gap   {model.duality_gap_:.1e}   (primal {model.primal_objective_:.5g}, dual {model.dual_objective_:.5g})")
    click.echo("weights")
    for kernel, weight in sorted(zip(bank, model.kernel_weights_, strict=True), key=lambda pair: -pair[1]):
        click.echo(f"  {weight:6.3f}  {'#' * round(40 * weight):<40}  {kernel!r}")
    if out:
        model.save(out)
        click.echo(f"model written to {out}; read it with raymkl.load({out!r})")


def demo_problem() -> tuple:
    """(train views, test views, train labels, test labels, kernels): digits seen as pixels, as coarse 4 x 4 images, and as profiles."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from . import kernels

    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16.0
    views = {
        "pixels": images.reshape(-1, 64),
        "coarse": images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16),
        "profile": np.hstack([images.mean(axis=1), images.mean(axis=2)]),
    }
    labels = np.where(digits % 2 == 1, "odd", "even")
    learn, check = train_test_split(np.arange(len(labels)), test_size=0.3, random_state=0, stratify=digits)
    bank = [
        *kernels.rbf([0.02, 0.1, 0.5], view="pixels"),
        kernels.Linear(view="pixels"),
        kernels.Polynomial(degree=3, coef0=1.0, gamma=0.1, view="pixels"),
        *kernels.rbf([0.5, 2.0], view="coarse"),
        kernels.Chi2(gamma=1.0, view="profile"),
    ]
    return {k: v[learn] for k, v in views.items()}, {k: v[check] for k, v in views.items()}, labels[learn], labels[check], bank


if __name__ == "__main__":
    main()
