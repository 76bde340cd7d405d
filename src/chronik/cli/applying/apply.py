"""`chronik apply`: change a cluster to match a TOML file, after showing the plan and asking for confirmation."""

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

EXIT_OK, EXIT_HAS_STEPS = 0, 2
PROGRESS_DELAY_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="TOML file with the desired state, as chronik export prints it"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show the plan without applying it; the exit code is 2 if the plan has steps, otherwise 0",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="delete topics (with their records), users, ACLs and quotas that the file does not list; "
        "sections that the file lacks are left unchanged",
    )
    add_json_argument(parser, "print the plan as JSON; requires --yes or --dry-run")
    add_client_arguments(parser, run_apply)


def run_apply(arguments: argparse.Namespace) -> int:
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise WrongInput("--json cannot ask for confirmation: use --yes or --dry-run")
    wanted = read_file(arguments.file)
    with cluster_of(arguments) as cluster:
        security = cluster.security
        current_user = security.username if security.has_login else ""
        plan = make_plan(wanted, state_for(cluster, wanted), current_user)
        _print_plan(plan, arguments)
        pending = plan.to_do(prune=arguments.prune)
        if arguments.dry_run:
            return EXIT_HAS_STEPS if pending else EXIT_OK
        steps = pending if arguments.yes else _confirm_steps(plan, prune=arguments.prune)
        if steps:
            passwords = passwords_for(steps, arguments.file.parent)
            check(cluster, steps)
            with Bar("apply", len(steps), unit="steps", hidden_for_s=PROGRESS_DELAY_SECONDS) as bar:
                carry_out(cluster, steps, passwords, bar.reach)
                bar.reach(len(steps))
    if not arguments.json and pending:
        print(f"{counted(len(steps), 'step')} applied" if steps else "No changes were made.")
    return EXIT_OK


def _confirm_steps(plan: Plan, *, prune: bool) -> tuple[Step, ...]:
    """Ask for confirmation of the changes, then of the deletions, and return the confirmed steps."""
    steps: tuple[Step, ...] = ()
    if plan.steps:
        if not _confirm("Apply these changes?"):
            return ()
        steps = plan.steps
    deletions = plan.deletions if prune else ()
    if deletions and _confirm(f"Delete what the file does not list ({counted(len(deletions), 'step')})?"):
        steps += deletions
    return steps


def _confirm(question: str) -> bool:
    """Ask a yes-or-no question; raise InvalidInput if stdin is closed."""
    print(f"{question} [y/N] ", end="", flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        print()
        raise WrongInput(
            "no confirmation: stdin is closed; use --yes to apply the plan, or --dry-run to show it"
        ) from None


def _print_plan(plan: Plan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(as_json(plan, prune=arguments.prune))
        return
    sentences_to_print = [each for step in plan.to_do(prune=arguments.prune) for each in sentences(step)]
    for number, sentence in enumerate(sentences_to_print, 1):
        print(f"  {number}. {sentence}")
    for note in plan.notes:
        print(f"  {note}")
    if plan.deletions and not arguments.prune:
        print("not in the file (use --prune to delete):")
        for sentence in (each for step in plan.deletions for each in sentences(step)):
            print(f"  {sentence}")
    if plan.left:
        print(f"unchanged: {enumerated(counted(count, kind) for kind, count in plan.left.items())}")
    if not sentences_to_print:
        print("no changes needed")
