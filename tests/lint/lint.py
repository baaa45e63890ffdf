#!/usr/bin/env python3
"""Checks the tree against rules.py. Usage: lint.py [ROOT]. Prints path:line: what; exit 1 when any."""
import os
import re
import subprocess
import sys

import rules
import structure


def list_files(root):
    """Files of the checkout (ignored ones apart), else of the whole tree without build folders."""
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode("utf-8", "surrogateescape")
        found = [path for path in out.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f != "build" and (f == ".ci" or not f.startswith("."))]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path.replace(os.sep, "/") for path in set(found)
                  if os.path.isfile(os.path.join(root, path)))


def read_lines(root, path):
    """Lines of a text file; none of one that is no UTF-8 (a picture, weights)."""
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read().split("\n")
    except UnicodeDecodeError:
        return []


def may_use_library(path, where):
    """Whether `path`, or the file that a test mirrors, matches the pattern of a door."""
    mirrored = path[len("tests/"):] if path.startswith("tests/") else path
    return re.match(where, path) or re.match(where, mirrored)


def check_own_include(path, header):
    """What is wrong with including our own `header` from `path`, or None."""
    for pattern, allowed in rules.MAY_INCLUDE:
        match = re.match(pattern, path)
        if not match:
            continue
        name = "protos" if rules.GENERATED.match(header) else header
        for prefix in allowed:
            if name.startswith(prefix.replace("{self}", match.groupdict().get("self") or "")):
                return None
        return f"{path.rsplit('/', 1)[0]}/ may not include {header}"
    return f"no rule says what {path} may include"


def check_include(root, path, quote, header):
    """What is wrong with one #include, or None."""
    top = header.split("/", 1)[0]
    ours = top in ("common", "kernels", "services", "tools", "tests") and "/" in header
    if ours or rules.GENERATED.match(header):
        if quote != '"':
            return f'our own {header} is included with ""'
        return check_own_include(path, header)
    if quote == '"' and os.path.exists(os.path.join(root, os.path.dirname(path), header)):
        return f"{header} is included by its path from the root"
    for library, headers, where in rules.DOORS:
        if re.match(headers, header):
            if may_use_library(path, where):
                return None
            return f"{library} ({header}) is not included here: its door is elsewhere"
    return f"{header} belongs to no known library (rules.py lists them with their doors)"


def check_text(root, path, lines):
    """Yields (line, what) for one file."""
    if rules.CPP.search(path):
        for number, line in enumerate(lines, 1):
            match = structure.INCLUDE.match(line)
            if match and (wrong := check_include(root, path, match.group(1), match.group(2))):
                yield number, wrong
    if re.search(r"\.(h|cuh)$", path) and not path.endswith("-inl.h"):
        if "#pragma once" not in lines:
            yield 1, "a header begins with #pragma once"
    if rules.CODE.search(path) and len(lines) - 1 > rules.MAX_LINES:
        yield rules.MAX_LINES + 1, (
            f"{len(lines) - 1} lines; {rules.MAX_LINES} are the limit: split by responsibility")
    for pattern, looked_in, allowed_in, why in rules.FORBIDDEN:
        if not looked_in.search(path) or (allowed_in and allowed_in.search(path)):
            continue
        for number, line in enumerate(lines, 1):
            if match := pattern.search(line):
                yield number, f'"{match.group(0)}": {why}'


def check_readmes(root, files):
    """Yields (path, line, what) for folders without a README.md, or with a long one."""
    folders = set()
    for path in files:
        parts = path.split("/")[:-1]
        folders.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    for folder in sorted(f for f in folders if rules.NEED_README.match(f)):
        readme = f"{folder}/README.md"
        if readme not in files:
            yield readme, 1, "the folder has no README.md"
        elif (count := len(read_lines(root, readme)) - 1) > rules.MAX_README_LINES:
            yield readme, count, f"{count} lines; {rules.MAX_README_LINES} are the limit"


def check(root):
    """All violations of the tree as (path, line, what), and its long files as (path, lines)."""
    files = [path for path in list_files(root) if not rules.DATA.match(path)]
    violations, long_files = list(check_readmes(root, set(files))), []
    lines_of = {path: read_lines(root, path) for path in files}
    violations += structure.check(files, lines_of)
    for path, lines in lines_of.items():
        violations += [(path, number, what) for number, what in check_text(root, path, lines)]
        if rules.CODE.search(path) and len(lines) - 1 > rules.LONG_LINES:
            long_files.append((path, len(lines) - 1))
    return files, sorted(violations), long_files


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    files, violations, long_files = check(root)
    for path, lines in long_files:
        print(f"long: {path} has {lines} lines")
    for path, line, what in violations:
        print(f"{path}:{line}: {what}")
    print(f"lint: {len(files)} files, {len(violations)} violations")
    if not files:
        print("lint: nothing to check")
    return 1 if violations or not files else 0


if __name__ == "__main__":
    sys.exit(main())
