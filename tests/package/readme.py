#!/usr/bin/env python3
"""README.md as a shell script. Its programs become files, and its commands run one after the other in one shell.

Usage: readme.py README OUTPUT_FOLDER [SKIPPED_COMMAND_PREFIX]...
Writes example.c, example.py and commands.sh. A command that fails ends the script with its status. Every skipped prefix
must match at least one command, so that no stale prefix remains. A block of "py" is an excerpt of
the program of docs/guide/first-layer.md, which needs torch: it is compared with that page and not run.
"""
import pathlib
import re
import sys

PROGRAMS = {"c": "example.c", "python": "example.py"}
EXCERPTS = {"py": "docs/guide/first-layer.md"}


def parts(text):
    """Programs by name, excerpts with the names of their files, and the commands, which are the indented blocks."""
    programs, excerpts, commands = {}, [], []
    language, block = None, []
    for line in text.splitlines():
        fence = re.match(r"```(\w*)$", line)
        if fence and language is None:
            language, block = fence.group(1), []
        elif fence:
            if language in PROGRAMS:
                assert PROGRAMS[language] not in programs, f"two programs in {language}"
                programs[PROGRAMS[language]] = "\n".join(block) + "\n"
            if language in EXCERPTS:
                excerpts.append((EXCERPTS[language], "\n".join(block) + "\n"))
            language = None
        elif language is not None:
            block.append(line)
        elif line.startswith("    "):
            commands.append(line[4:].split("  #")[0].rstrip())
    return programs, excerpts, commands


def script(commands):
    typed = "\n".join(f"printf '%s\\n' {quoted(command)}\n{command}\nstatus=$?\n[ $status = 0 ] || exit $status"
                      for command in commands)
    return f"{typed}\necho 'README: all commands worked'\n"


def quoted(command):
    return "'+ " + command.replace("'", "'\\''") + "'"


def main(readme, folder, *skipped):
    programs, excerpts, commands = parts(pathlib.Path(readme).read_text(encoding="utf-8"))
    assert set(programs) == set(PROGRAMS.values()), f"{readme} has the programs {sorted(programs)}"
    for name, text in excerpts:
        source = pathlib.Path(readme).parent / name
        assert text in source.read_text(encoding="utf-8"), f"{readme} shows something else than {name}"
    for prefix in skipped:
        assert any(command.startswith(prefix) for command in commands), f"{readme} has no command {prefix}"
    commands = [command for command in commands if not command.startswith(skipped)]
    for name, text in programs.items():
        pathlib.Path(folder, name).write_text(text, encoding="utf-8")
    pathlib.Path(folder, "commands.sh").write_text(script(commands), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
