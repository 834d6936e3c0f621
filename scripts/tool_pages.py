#!/usr/bin/env python3
"""Makes manual pages and completions for bash and zsh from what programs print for --help.

Usage: tool_pages.py OUT_DIR VERSION PROGRAM...   (--compress first: manual pages as Debian wants them)
Writes OUT_DIR/man/NAME.1, OUT_DIR/bash/NAME and OUT_DIR/zsh/_NAME. The build calls it (cmake/MoecommInstall.cmake).
"""
import dataclasses
import gzip
import pathlib
import re
import subprocess
import sys

TEXT_COLUMN = 30  # where CLI11 begins the texts of options
NOTES = ("Exit status", "Environment")  # titles of lists of terms


@dataclasses.dataclass
class Option:
    names: list  # such as -n, --ranks
    argument: str  # "" for a flag
    text: str

    def values(self):
        """The words that it accepts, if it says which: in its argument, {a,b}, or at the end of its text, ": a, b"."""
        braces = re.search(r"\{([\w,-]+)\}", self.argument)
        if braces:
            return braces.group(1).split(",")
        listed = re.search(r": ([\w-]+(, [\w-]+)+)$", self.text)
        return listed.group(1).split(", ") if listed and self.argument.startswith("NAME") else []


def option_of(head, text):
    names, _, argument = head.replace("{false}", "").partition(" ")
    argument = re.sub(r":NONNEGATIVE|:INT in \[[^]]*\]", "", argument)
    return Option(names.split(","), argument.strip(), text)


def parsed(name, text):
    """The description, and the groups [(title, options, lines)], of a help text. Lines are those of notes."""
    about, _, rest = text.partition("\nUsage: ")
    groups, head, words = [], None, []

    def close():
        if head:
            groups[-1][1].append(option_of(head, " ".join(words)))

    for line in rest.splitlines()[1:]:
        if re.match(r"\S.*:$", line):
            close()
            head = None
            groups.append((line[:-1], [], []))
        elif line.startswith("  -"):
            close()
            split = TEXT_COLUMN if line[TEXT_COLUMN - 1:TEXT_COLUMN] == " " else len(line)
            head, words = line[:split].strip(), line[split:].split()
        elif head and line.startswith(" " * TEXT_COLUMN):
            words += line.split()
        elif line.strip():
            close()
            head = None
            groups[-1][2].append(line.removeprefix("  ").rstrip())
    close()
    if not groups or not any(options for _, options, _ in groups):
        sys.exit(f"tool_pages: the help of {name} has no options")
    return " ".join(about.split()), groups


def split(name, about):
    """What a description says, and how it says that the program is called."""
    text, _, usage = re.sub(r"\.$", "", about).partition(": " + name)
    return text, usage.strip() or "[OPTIONS]"


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def notes(lines):
    """Pairs of a term and its text, of lines that continue where they begin with blanks."""
    found = []
    for line in lines:
        if line.startswith(" ") and found:
            found[-1][1] += " " + line.strip()
        else:
            found.append(re.split(r"  +", line, maxsplit=1) + [""])
    return [(term, text) for term, text, *_ in found]


def section(title, lines):
    """The lines below a title of the help that are no options: a list of terms, or commands as they stand."""
    if title not in NOTES:
        return [".nf", *map(roff, lines), ".fi"]
    return [part for term, text in notes(lines) for part in (".TP", f"\\fB{roff(term)}\\fR", roff(text))]


def manual(name, version, about, groups):
    summary, usage = split(name, about)
    summary = summary.split(". ")[0]
    lines = [f'.TH {name.upper()} 1 "" "moecomm {version}" "User Commands"', ".SH NAME",
             f"{name} \\- {roff(summary[0].lower() + summary[1:])}", ".SH SYNOPSIS", f".B {name}",
             roff(usage), ".SH DESCRIPTION", roff(about)]
    for title, options, others in groups:
        lines.append(f".SH {roff(title.upper())}")
        for option in options:
            lines += [".TP", f"\\fB{roff(', '.join(option.names))}\\fR {roff(option.argument)}".rstrip(),
                      roff(option.text)]
        if others:
            lines += section(title, others)
    lines += [".SH SEE ALSO", "The documents of moecomm, and the header", ".IR moecomm.h ."]
    return "\n".join(lines) + "\n"


BASH = """# Completion of {name} for bash, made from its --help.
_{name}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
{command}  case $before in
{values}  esac
  [[ $current != -* ]] || mapfile -t COMPREPLY < <(compgen -W "{names}" -- "$current")
}}
complete -o default -F _{name} {name}
"""
# For a program that starts a command, whose words are completed as those of that command. Bash cuts --option=value.
BASH_COMMAND = """  local takes_value=" {names} " i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ $takes_value == *" ${{COMP_WORDS[i]}} "* ]]; then
      ((++i))
      [[ ${{COMP_WORDS[i]}} != "=" ]] || ((++i))
    elif [[ ${{COMP_WORDS[i]}} != -* ]]; then
      ! declare -F _command_offset >/dev/null || _command_offset "$i"
      return
    fi
  done
"""


def bash(name, options, starts_commands):
    values = "".join(f'    {"|".join(option.names)}) mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.values())}" '
                     f'-- "$current"); return ;;\n' for option in options if option.values())
    names = " ".join(each for option in options for each in option.names)
    with_value = " ".join(each for option in options if option.argument for each in option.names)
    command = BASH_COMMAND.format(names=with_value) if starts_commands else ""
    return BASH.format(name=name, command=command, values=values, names=names)


def zsh(name, options, starts_commands):
    lines = [f"#compdef {name}", f"# Completion of {name} for zsh, made from its --help.", "_arguments -s -S \\"]
    for option in options:
        text = re.sub(r"([][:\\])", r"\\\1", option.text).replace("'", "'\\''")
        takes = ""
        if option.argument:
            takes = f":value:({' '.join(option.values())})" if option.values() else ":value:_files"
        others = " ".join(option.names)
        lines += [f"  '({others}){each}[{text}]{takes}' \\" for each in option.names]
    return "\n".join([*lines, "  '*::command:_normal'" if starts_commands else "  '*:file:_files'"]) + "\n"


def main(out, version, programs, compress):
    for path in map(pathlib.Path, programs):
        name = path.name
        help_text = subprocess.run([name, "--help"], executable=path.resolve(), check=True, capture_output=True,
                                   text=True).stdout
        about, groups = parsed(name, help_text)
        options = [option for _, of_group, _ in groups for option in of_group]
        starts_commands = "COMMAND" in about
        page, page_name = manual(name, version, about, groups).encode(), f"{name}.1"
        if compress:
            page, page_name = gzip.compress(page, 9, mtime=0), f"{name}.1.gz"
        for folder, file, data in (("man", page_name, page),
                                   ("bash", name, bash(name, options, starts_commands).encode()),
                                   ("zsh", f"_{name}", zsh(name, options, starts_commands).encode())):
            pathlib.Path(out, folder).mkdir(parents=True, exist_ok=True)
            pathlib.Path(out, folder, file).write_bytes(data)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    compressed = arguments[:1] == ["--compress"]
    arguments = arguments[compressed:]
    if len(arguments) < 3:
        sys.exit(__doc__)
    main(arguments[0], arguments[1], arguments[2:], compressed)
