"""Lists the commands of `omnigraph` for its help: their sections, and examples of each.

Invariant: every command is in one section and has at least one example; a command without an
example does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake.cli.conversion import PlainGroup

if TYPE_CHECKING:
    import typer
    from typer.models import CommandInfo


GROUPS: Final = {
    "Data": (
        *("init", "import", "load", "export", "query", "mutate", "queries", "shell", "view"),
        "blob",
    ),
    "History": ("log", "commit", "diff", "changes", "branch", "tag", "merge", "revert", "blame"),
    "Schema": ("schema", "lint", "fmt", "lsp"),
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
    "First steps": ("demo", "doctor"),
}
"""The commands and groups of commands of `omnigraph`, as its help lists them."""

EXAMPLES: Final = {
    "init": ("init ./g --schema people.pg", "init s3://bucket/g --schema people.pg --actor ann"),
    "status": ("status ./g", "status ./g --branch dev --json", "status ./g --html status.html"),
    "lint": ("lint people.pg", "lint people.gq --schema people.pg"),
    "fmt": ("fmt people.pg", "fmt people.gq --check"),
    "lsp": ("lsp", "lsp --graph ./g"),
    "check": ("check ./g", "check ./g --deep"),
    "backup": ("backup ./g /mnt/backup/g", "backup ./g s3://bucket/backup/g"),
    "restore": ("restore s3://bucket/backup/g ./restored",),
    "clone": ("clone s3://bucket/g ./copy", "clone ./g ./copy --branch dev"),
    "verify": ("verify s3://bucket/backup/g",),
    "demo small": ("demo small ./solar",),
    "demo debian": (
        "demo debian ./deb",
        "demo debian ./deb --suite stable --suite testing --engine local",
        "demo debian ./deb --sample",
    ),
    "doctor": ("doctor", "doctor s3://bucket/g --json"),
    "import": (
        "import ./g people.csv companies.csv",
        "import ./g 'data/*.parquet' --dry-run",
        "import ./g people.csv --map g.map.toml --unknown-columns ignore",
        "import ./g - --format jsonl",
    ),
    "load": (
        "load ./g people.jsonl --dry-run",
        "load ./g people.csv --type Person --map name=full_name --mode merge",
        "load ./g 'data/*.jsonl' --on-error quarantine --max-rejected 1%",
    ),
    "export": ("export ./g -o people.jsonl", "export ./g --format parquet -o ./files --at v1"),
    "query": (
        "query ./g people.gq --name friends --param name=Ann",
        "query ./g -e 'match { $p: Person } return { $p.name }'",
    ),
    "mutate": ('mutate ./g people.gq --name hire --param name=Ann -m "Hire Ann"',),
    "queries": ("queries ./g ./queries",),
    "shell": ("shell ./g", "shell ./g --branch dev --read-only"),
    "view": (
        "view ./g -o people.html --around Person/ann --hops 2",
        "view ./g --diff main dev -o changes.html",
        "view ./g --commits -o history.svg",
    ),
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
    "commit show": ("commit show ./g HEAD~1", "commit show ./g 01M7HZET"),
    "log": ("log ./g", "log ./g --graph"),
    "blame": ("blame ./g Person ann@example.org", "blame ./g Knows 01M7HZET4G00000S46800000Y3"),
    "revert": ("revert ./g HEAD~1", "revert ./g 01M7HZET --dry-run"),
    "recovery list": ("recovery list ./g",),
    "recovery run": ("recovery run ./g", "recovery run ./g --force"),
    "branch create": ("branch create ./g dev", "branch create ./g fix --from v1 --expires 7d"),
    "branch list": ("branch list ./g",),
    "branch restore": ("branch restore ./g release-1", "branch restore ./g HEAD~3 --dry-run"),
    "branch delete": ("branch delete ./g dev",),
    "blob get": (
        "blob get ./g Document d1 -o d1.pdf",
        "blob get ./g Document d1 scan --range 0..1000",
    ),
    "hold list": ("hold list ./g",),
    "hold release": ("hold release ./g 01M7HZET4G00000S46800000Y3",),
    "tag create": ("tag create ./g release-1", "tag create ./g release-1 --at dev --actor ann"),
    "tag list": ("tag list ./g",),
    "tag delete": ("tag delete ./g release-1",),
}
"""By command: what follows `omnigraph`."""


class GroupedCommands(PlainGroup):
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
        command.epilog = _section(EXAMPLES[f"{group} {command_name(command)}".strip()])
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            show_everywhere(inner.typer_instance, str(inner.name))


def command_name(command: CommandInfo) -> str:
    """The word that runs a command."""
    return str(command.name or getattr(command.callback, "__name__", ""))


def _section(examples: tuple[str, ...]) -> str:
    # "\b" keeps click from wrapping the lines that follow.
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join(("\b", title, *(f"  omnigraph {example}" for example in examples)))
