"""The help of commands: groups of them, and examples below each.

Invariant: every command is in one group and has at least one example; a command without an example
does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperGroup

if TYPE_CHECKING:
    import typer

GROUPS: Final = {
    "Data": ("init", "load", "export", "query", "mutate", "queries"),
    "History": ("branch", "tag", "commit", "diff", "changes", "merge"),
    "Schema": ("schema", "lint", "fmt"),
    "Maintenance": (
        "status",
        "check",
        "optimize",
        "cleanup",
        "maintain",
        "scrub",
        "repair",
        "reconcile",
        "recovery",
        "hold",
    ),
    "Copies": ("backup", "restore", "clone", "verify"),
}
"""The commands and groups of commands of `omnigraph`, as its help lists them."""

EXAMPLES: Final = {
    "init": ("init ./g --schema people.pg", "init s3://bucket/g --schema people.pg --actor ann"),
    "status": ("status ./g", "status ./g --branch dev --json"),
    "lint": ("lint people.pg", "lint people.gq --schema people.pg"),
    "fmt": ("fmt people.pg", "fmt people.pg --check"),
    "check": ("check ./g", "check ./g --deep"),
    "backup": ("backup ./g /mnt/backup/g", "backup ./g s3://bucket/backup/g"),
    "restore": ("restore s3://bucket/backup/g ./restored",),
    "clone": ("clone s3://bucket/g ./copy", "clone ./g ./copy --branch dev"),
    "verify": ("verify s3://bucket/backup/g",),
    "load": (
        "load ./g people.jsonl --dry-run",
        "load ./g people.csv --type Person --map name=full_name --mode merge",
        "load ./g 'data/*.jsonl' --on-error quarantine --max-rejected 1%",
    ),
    "export": ("export ./g -o people.jsonl", "export ./g --format parquet -o ./files --at v1"),
    "query": (
        "query ./g people.gq --name friends --param name=Ann",
        "query ./g -e 'query all() { match { $p: Person } return { $p.name } }'",
    ),
    "mutate": ("mutate ./g people.gq --name hire --param name=Ann --actor ann",),
    "queries": ("queries ./g ./queries",),
    "merge": ("merge ./g dev", "merge ./g dev --into main --resolve theirs"),
    "diff": ("diff ./g main dev", "diff ./g v1.. --type Person --format jsonl -o people.jsonl"),
    "changes": ("changes ./g --limit 10", "changes ./g --lines --start now"),
    "optimize": ("optimize ./g",),
    "scrub": ("scrub ./g --rate 50", "scrub ./g --record"),
    "cleanup": ("cleanup ./g --older-than 7d", "cleanup ./g --keep 10 --confirm"),
    "reconcile": ("reconcile ./g", "reconcile ./g --confirm"),
    "repair": ("repair ./g", "repair ./g --confirm"),
    "maintain": ("maintain ./g --policy policy.toml --metrics omnigraph.prom",),
    "schema show": ("schema show ./g", "schema show ./g --source"),
    "schema plan": ("schema plan ./g people.pg",),
    "schema apply": ("schema apply ./g people.pg --actor ann",),
    "commit list": ("commit list ./g --limit 5", "commit list ./g --filter actor=ann"),
    "recovery list": ("recovery list ./g",),
    "recovery run": ("recovery run ./g", "recovery run ./g --force"),
    "branch create": ("branch create ./g dev", "branch create ./g fix --from v1 --expires 7d"),
    "branch list": ("branch list ./g",),
    "branch delete": ("branch delete ./g dev",),
    "hold list": ("hold list ./g",),
    "hold release": ("hold release ./g 01M7HZET4G00000S46800000Y3",),
    "tag create": ("tag create ./g release-1", "tag create ./g release-1 --at dev --actor ann"),
    "tag list": ("tag list ./g",),
    "tag delete": ("tag delete ./g release-1",),
}
"""By command: what follows `omnigraph`."""


class GroupedCommands(TyperGroup):
    """Lists its commands in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as in click
        name_width = max(map(len, self.commands))
        for title, members in GROUPS.items():
            rows = [
                (
                    name.ljust(name_width),
                    self.commands[name].get_short_help_str(formatter.width - 6 - name_width),
                )
                for name in members
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


def show_everywhere(app: typer.Typer, group: str = "") -> None:
    """Add the examples to the help of every command of an app and of the groups below it."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        command.epilog = _section(EXAMPLES[f"{group} {name}".strip()])
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            show_everywhere(inner.typer_instance, str(inner.name))


def _section(examples: tuple[str, ...]) -> str:
    # "\b" keeps click from wrapping the lines that follow.
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join(("\b", title, *(f"  omnigraph {example}" for example in examples)))
