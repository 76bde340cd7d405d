"""`chronik apply`: makes a cluster what a file says: shows what is missing, asks, and does it."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.applying.carrying_out import carry_out, check, passwords_for
from chronik.cli.applying.planner import Plan, make_plan
from chronik.cli.applying.present import state_for
from chronik.cli.applying.reading import read_file
from chronik.cli.applying.showing import as_json, sentences
from chronik.cli.applying.steps import Step
from chronik.cli.arguments import WrongInput, add_client_arguments, add_json_argument, cluster_of
from chronik.cli.output import print_json
from chronik.pipeline.journal.bars import Bar
from chronik.planning.views import enumerated
from chronik.wording import counted

EXIT_OK, EXIT_SOMETHING_TO_DO = 0, 2
SHOWN_AFTER_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="what is to be there, in TOML; chronik export prints it"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask whether to go on")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show the plan and change nothing; the exit code is 2 when something is to do, and 0 when nothing is",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="delete what is not in the file, of the parts that it has: topics with their records, users, …",
    )
    add_json_argument(parser, "print the plan as JSON; needs --yes or --dry-run")
    add_client_arguments(parser, run_apply)


def run_apply(arguments: argparse.Namespace) -> int:
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise WrongInput("--json asks no questions: give --yes or --dry-run with it")
    wanted = read_file(arguments.file)
    with cluster_of(arguments) as cluster:
        security = cluster.security
        asking_user = security.username if security.has_login else ""
        plan = make_plan(wanted, state_for(cluster, wanted), asking_user)
        _show(plan, arguments)
        to_do = plan.to_do(prune=arguments.prune)
        if arguments.dry_run:
            return EXIT_SOMETHING_TO_DO if to_do else EXIT_OK
        steps = to_do if arguments.yes else _agreed(plan, prune=arguments.prune)
        if steps:
            passwords = passwords_for(steps, arguments.file.parent)
            check(cluster, steps)
            with Bar("apply", len(steps), unit="steps", hidden_for_s=SHOWN_AFTER_SECONDS) as bar:
                carry_out(cluster, steps, passwords, bar.reach)
                bar.reach(len(steps))
    if not arguments.json and to_do:
        print(f"{counted(len(steps), 'step')} done" if steps else "Nothing was changed.")
    return EXIT_OK


def _agreed(plan: Plan, *, prune: bool) -> tuple[Step, ...]:
    """Asks for what is made, and again for what is deleted; before either is done."""
    steps: tuple[Step, ...] = ()
    if plan.steps:
        if not _says_yes("Go on?"):
            return ()
        steps = plan.steps
    deletions = plan.deletions if prune else ()
    if deletions and _says_yes(f"Delete what is not in the file ({counted(len(deletions), 'step')})?"):
        steps += deletions
    return steps


def _says_yes(question: str) -> bool:
    """Raises WrongInput where nobody can answer."""
    print(f"{question} [y/N] ", end="", flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        print()
        raise WrongInput("nobody is there to say yes: --yes says it, and --dry-run only shows the plan") from None


def _show(plan: Plan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(as_json(plan, prune=arguments.prune))
        return
    told = [each for step in plan.to_do(prune=arguments.prune) for each in sentences(step)]
    for number, sentence in enumerate(told, 1):
        print(f"  {number}. {sentence}")
    for note in plan.notes:
        print(f"  {note}")
    if plan.deletions and not arguments.prune:
        print("not in the file, and only with --prune:")
        for sentence in (each for step in plan.deletions for each in sentences(step)):
            print(f"  {sentence}")
    if plan.left:
        print(f"as the file says: {enumerated(counted(count, kind) for kind, count in plan.left.items())}")
    if not told:
        print("nothing to do")
