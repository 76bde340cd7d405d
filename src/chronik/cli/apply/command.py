"""`chronik apply`: change a cluster to match a TOML file, after showing the plan and asking for confirmation."""

from __future__ import annotations

import argparse
from pathlib import Path

from chronik.cli.apply.current_state import fetch_state_for_spec
from chronik.cli.apply.executor import execute_plan, read_passwords, validate_steps
from chronik.cli.apply.parser import load_spec
from chronik.cli.apply.plan_format import describe_step, plan_to_json
from chronik.cli.apply.planner import ApplyPlan, PlanStep, plan_changes
from chronik.cli.arguments import InvalidInput, add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import print_json
from chronik.pipeline.journal.progress_bar import ProgressBar
from chronik.planning.views import join_words
from chronik.wording import pluralize

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
        raise InvalidInput("--json cannot ask for confirmation: use --yes or --dry-run")
    wanted = load_spec(arguments.file)
    with connect_cluster(arguments) as cluster:
        security = cluster.security
        current_user = security.username if security.has_login else ""
        plan = plan_changes(wanted, fetch_state_for_spec(cluster, wanted), current_user)
        _print_plan(plan, arguments)
        pending = plan.list_pending_steps(prune=arguments.prune)
        if arguments.dry_run:
            return EXIT_HAS_STEPS if pending else EXIT_OK
        steps = pending if arguments.yes else _confirm_plan_steps(plan, prune=arguments.prune)
        if steps:
            passwords = read_passwords(steps, arguments.file.parent)
            validate_steps(cluster, steps)
            with ProgressBar("apply", len(steps), unit="steps", delay_s=PROGRESS_DELAY_SECONDS) as bar:
                execute_plan(cluster, steps, passwords, bar.update)
                bar.update(len(steps))
    if not arguments.json and pending:
        print(f"{pluralize(len(steps), 'step')} applied" if steps else "No changes were made.")
    return EXIT_OK


def _confirm_plan_steps(plan: ApplyPlan, *, prune: bool) -> tuple[PlanStep, ...]:
    """Ask the user to confirm the plan's changes, then its deletions, and return the confirmed steps."""
    steps: tuple[PlanStep, ...] = ()
    if plan.steps:
        if not _confirm("Apply these changes?"):
            return ()
        steps = plan.steps
    deletions = plan.deletions if prune else ()
    if deletions and _confirm(f"Delete what the file does not list ({pluralize(len(deletions), 'step')})?"):
        steps += deletions
    return steps


def _confirm(question: str) -> bool:
    """Ask the user a yes-or-no question; raise InvalidInput if stdin is closed."""
    print(f"{question} [y/N] ", end="", flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        print()
        raise InvalidInput(
            "no confirmation: stdin is closed; use --yes to apply the plan, or --dry-run to show it"
        ) from None


def _print_plan(plan: ApplyPlan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(plan_to_json(plan, prune=arguments.prune))
        return
    sentences_to_print = [
        each for step in plan.list_pending_steps(prune=arguments.prune) for each in describe_step(step)
    ]
    for number, sentence in enumerate(sentences_to_print, 1):
        print(f"  {number}. {sentence}")
    for note in plan.notes:
        print(f"  {note}")
    if plan.deletions and not arguments.prune:
        print("not in the file (use --prune to delete):")
        for sentence in (each for step in plan.deletions for each in describe_step(step)):
            print(f"  {sentence}")
    if plan.unchanged:
        print(f"unchanged: {join_words(pluralize(count, kind) for kind, count in plan.unchanged.items())}")
    if not sentences_to_print:
        print("no changes needed")
