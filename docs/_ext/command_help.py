"""``{command-help}``: a section for every command with what its own ``--help`` prints."""

from __future__ import annotations

from click import Command, Context
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from demopool.commands import cli


def help_of(command: Command, name: str, parent: Context | None = None) -> str:
    settings = {**cli.context_settings, **command.context_settings}
    context = Context(command, info_name=name, parent=parent, terminal_width=80, **settings)
    return command.get_help(context)


class CommandHelp(SphinxDirective):
    """Takes no arguments: the commands are those that the command line has."""

    def run(self) -> list[nodes.Node]:
        group = Context(cli, info_name="demopool", **cli.context_settings)
        texts = {"demopool": help_of(cli, "demopool")}
        for name in cli.list_commands(group):
            command = cli.get_command(group, name)
            assert command is not None
            texts[f"demopool {name}"] = help_of(command, name, group)
        return [self._section(name, text) for name, text in texts.items()]

    def _section(self, name: str, text: str) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title(text=name)
        section += nodes.literal_block(text, text, language="text")
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
