"""A failure for a reader: what was violated, how to see it again, and a short story of the smallest such run.

Called by the command and by the tests. Files go into one directory, named by the seed: the shrunk plan, the
picture, and all of it as one page of Markdown with a Mermaid diagram.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.harness.plan import Plan, draw_plan
from tests.simulation.harness.runner import Outcome
from tests.simulation.story.picture import mermaid, svg
from tests.simulation.story.plan_file import PlanFile
from tests.simulation.story.shrink import MOST_RUNS, MOST_SECONDS, Shrinker, size_of
from tests.simulation.story.story import Story, tell, transcript

ROOT = Path(__file__).parents[3]
LEGEND = "virtual seconds; A> what A logged, A: what its core did, A = its status, --> said, not yet heard"
TRACEBACK = 12
"""Lines of it, for a failure that no checker named."""


@dataclass(slots=True)
class Report:
    """`plan` is the one to replay, shrunk or not; `small` is what it comes to, and `story` is told of it."""

    outcome: Outcome
    plan: Plan
    small: Outcome
    story: Story
    shrunk: str
    mutant: str = ""
    planned: Path | None = None
    """The file that the plan was read from, if it was."""

    def head(self, plan_path: Path | None) -> list[str]:
        """What failed, where, and how to see it again."""
        o = self.outcome
        if o.failure is None:
            return [f"seed {o.seed}: no failure in {o.virtual_seconds:.6f} s, {o.events:,} events"]
        lines = [f"seed {o.seed} failed at {o.virtual_seconds:.6f} s: {o.failure}"]
        words = in_words(o.invariant)
        if words:
            lines.append(f"  invariant {o.invariant} of docs/explanation/guarantees.md: {words}")
        elif not o.invariant:
            lines.append("  no checker names this: the run itself broke off")
        lines.append(f"  commit: {commit()}")
        mutant = f" --mutant '{self.mutant}'" if self.mutant else ""
        again = f"--plan {self.planned}" if self.planned else f"--seeds 1 --first {o.seed}"
        lines.append(f"  replay: python -m tests.simulation {again}{mutant} --verbose")
        if self.shrunk:
            lines.append(f"  shrunk: {self.shrunk}")
            if plan_path is not None:
                lines.append(f"  replay: python -m tests.simulation --plan {plan_path}{mutant}")
        return lines

    def body(self) -> list[str]:
        """The story, and what broke off if something did."""
        lines = ["", LEGEND, ""]
        lines += transcript(self.story)
        if self.outcome.failure is not None and not self.outcome.invariant:
            lines += ["", *self.outcome.transcript[-TRACEBACK:]]
        return lines

    def text(self, plan_path: Path | None = None) -> str:
        """For a terminal."""
        return "\n".join([*self.head(plan_path), *self.body(), "", mermaid(self.story)])

    def draw(self, path: Path) -> None:
        path.write_text(svg(self.story))

    def write(self, directory: Path) -> list[Path]:
        """Plan, picture and page. Returns their paths. A run as it was has files of its own beside those of
        the shrunk one."""
        directory.mkdir(parents=True, exist_ok=True)
        name = f"seed-{self.outcome.seed}{'' if self.shrunk else '-whole'}"
        plan, picture, page = (directory / f"{name}.{end}" for end in ("json", "svg", "md"))
        PlanFile(self.plan, self.small.failure, self.small.trace_hash, commit(), self.mutant).write(plan)
        self.draw(picture)
        parts = ["```", *self.head(plan), *self.body(), "```", ""]
        parts += [
            f"![who said what to whom]({picture.name})",
            "",
            "```mermaid",
            mermaid(self.story),
            "```",
            "",
        ]
        page.write_text("\n".join(parts))
        return [plan, picture, page]


def report(
    outcome: Outcome, plan: Plan | None = None, *, shrink: bool = True, mutant: str = "",
    told: Callable[[str], None] = lambda line: None, most_runs: int = MOST_RUNS,
    most_seconds: float = MOST_SECONDS,
) -> Report:  # fmt: skip
    """Shrink the failure of a seed, or of `plan`, and tell its story. A mutant must be in place already."""
    plan = plan if plan is not None else draw_plan(outcome.seed)
    shrunk, small = "", outcome
    if shrink:
        shrinker = Shrinker(plan, outcome, told, most_runs=most_runs, most_seconds=most_seconds)
        shrinker.shrink()
        before, after = outcome.events, shrinker.outcome.events
        shrunk = (
            f"from {size_of(plan)}, {before:,} events to {size_of(shrinker.plan)}, {after:,} events "
            f"in {shrinker.runs} runs"
        )
        plan, small = shrinker.plan, shrinker.outcome
    return Report(outcome, plan, small, tell(plan), shrunk, mutant)


def in_words(invariant: int) -> str:
    """The promise with this number: its heading in docs/explanation/guarantees.md, and its first line."""
    text = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
    found = re.search(rf"^### {invariant}\. (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    return f"{found[1]}. {' '.join(found[2].split())}" if found else ""


def commit() -> str:
    """Of the working tree, with what is known of its state."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        revision = git("describe", "--always", "--tags")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return "unknown (there is no git)"
    if not revision:
        return "unknown (not in a repository)"
    return f"{revision}, with uncommitted changes" if changed else revision
