#!/usr/bin/env python3
"""Measures whether the tests would notice a random mistake.

Each mutant has one random change in one statement of a file of the library: a
comparison that is reversed, a boundary moved by one, another constant, a statement
dropped, two stores swapped, a flag or a condition dropped, an error swallowed. One of
the tests that run the changed line must fail, crash or hang. The cheapest and most
specific tests run first, and the first that fails ends the trial. (Tables of constants
are not changed.)

    tests/mutate.py ROOT FOLDER [--seed S] [--count N] [--part P] [-j JOBS]
                    [--minutes M] [--again] [--longest S] [--least PERCENT]

The tests are those labelled unit and sim, the MPI tests on 3 ranks or without a number of
ranks in their names, and the tests on 3 ranks of emulated hosts, if this user may make
these. (Tests that kill ranks are left out, since killed ranks write no counters for
gcov.) FOLDER may be the one of mutants.sh, which builds in the same way: the library and
the tests are built once. For a mutant, one file is compiled, and linked ahead of the
library. gcov says which lines each test runs; this is measured again when the test is
built anew.

FOLDER keeps all results. If --minutes ends a call, the next call continues it. A mutant
that was found is not tried again. --again tries the survivors with the tests that were
built since. --longest leaves out tests that take longer than S seconds.

A mutant doesn't count if it doesn't compile, or if its object code is that of the
original. A mutant that can't be noticed, because it computes the same, is described in
equivalents.txt, beside this script. The table says for each part of the library (such as
lib/sched) how many mutants were tried, found and equivalent, and how many survived. With
--least the script fails if less than this share of the mutants was found. Equivalent
mutants do not count for the share.
"""
import argparse
import collections
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

PARTS = ("lib/base lib/ops lib/sched lib/transport progress lib/sim lib/coll/kit "
         "lib/coll/dense lib/coll/tune lib/coll/create lib/coll/partial "
         "lib/coll/sparse mpi").split()

# A process that ends by _exit would lose the counters of gcov.
EXIT = """void __gcov_dump(void); long syscall(long number, ...);
void _exit(int code) { __gcov_dump(); for (;;) syscall(231, code); }"""


QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
         "stderr": subprocess.DEVNULL}
COVERAGE = ("--coverage", "-O0")  # in optimised code some lines have no counter


def output_of(folder, *command):
    """Runs a command, and returns the text that it prints."""
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True,
                          text=True).stdout


def bytes_of(files):
    """Returns the contents of the files."""
    return [pathlib.Path(file).read_bytes() for file in files]


def fresh(folder):
    """Makes the folder, or empties it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


# ---- the changes -------------------------------------------------------------

# A change. `first` and `last` are the first and the last line of the statement. The text
# `new` replaces the characters from `begin` to `end`.
Site = collections.namedtuple("Site", "path line first last kind begin end new")
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">": "<=", "<=": ">", ">=": "<",
           "&&": "||", "||": "&&"}
MOVED = {"<": "<=", ">": ">=", "<=": "<", ">=": ">"}
# Patterns whose matches in a statement are deleted.
DELETED = (("comparison", r"(?<=[( ])!(?=[\w(])"), ("boundary", r" [-+] 1(?![\w.])"),
           ("flag", r" \| [A-Z]\w+(\(\w+\))?"),
           ("flag", r"(?<=[=(] )?\b[A-Z]\w+(\(\w+\))? \| "))
SWALLOWED = r"return (baton__error|-1;|NULL;|false;|\w*status\w*;)|goto \w+;"


def masked(text):
    """Returns the text with blanks for comments, strings, directives and assertions."""
    pattern = (r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
               r"|^#(?:\\\n|[^\n])*|\b(?:static_)?assert\([^;]*;")
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text,
                  flags=re.S | re.M)


def closing(text, at):
    """Returns where the parenthesis or brace that opens at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "({[") - (text[i] in ")}]")
        if depth == 0:
            return i
    return len(text) - 1


def statements(text, begin, end):
    """Yields the parts of a function's body that end in a semicolon or a brace."""
    depth = 0
    for i in range(begin, end):
        depth += (text[i] in "([") - (text[i] in ")]")
        if depth == 0 and text[i] in ";{}":
            label = re.match(r"\s*((case\s[^:?]*|default|\w+)\s*:(?!:))*\s*",
                             text[begin:i + 1])
            yield begin + label.end(), i + 1
            begin = i + 1


def droppable(statement):
    """Returns whether the statement is a call or an assignment, and no declaration."""
    name = r"(\(void\)!?)?[*(]*[A-Za-z_][\w.)\[\]]*(->[\w.\[\]]+)*"
    if re.match(r"(return|goto|if|while|for|switch|do|else|typedef)\b", statement):
        return False
    if re.match(name + r"((\+\+|--);$|\()", statement):
        return statement.endswith(";")
    left = re.match(r"([*(]*\w[^=;{}]*?)\s*(<<|>>|[-+*/|&^%])?=(?!=)[^{}]*;$", statement)
    return left is not None and not re.search(r"\w[\s*]+\w", left[1])


def words(statement):
    """Returns the names and numbers in the statement."""
    return re.findall(r"\w+", statement)


def written(statement):
    """Returns the name of the variable or field that an assignment changes. Returns all names
    in a call, since a call may change any of them."""
    left = re.match(r"[^=]*?(?=(\[[^=]*\])? (<<|>>|[-+*/|&^%])?=(?!=)|(\+\+|--);)", statement)
    return set(words(left[0])[-1:] if left else words(statement))


def sites_of_statement(text, begin, end, of_status):
    """Yields the changes of a statement: kind, begin, end, and the new text."""
    statement = text[begin:end]
    for match in re.finditer(r" (==|!=|<=|>=|<|>|&&|\|\|)(?=\s)", statement):
        sign, at, stop = match[1], begin + match.start(1), begin + match.end()
        yield "comparison", at, stop, NEGATED[sign]
        if sign in MOVED:
            yield "boundary", at, stop, MOVED[sign]
            continue
        while sign in "&&||" and not re.match(r"[);?,:]|&&|\|\|", text[stop:]):
            stop = closing(text, stop) + 1 if text[stop] in "([{" else stop + 1
        if sign in "&&||":
            yield "flag", at, stop, " "
    for kind, pattern in DELETED:
        for match in re.finditer(pattern, statement):
            yield kind, begin + match.start(), begin + match.end(), ""
    size = re.match(r"(static |const )*\w+ \w+\[[^]]*\]", statement)
    for match in re.finditer(r"(?<![\w.])\d+(?=[uUlL]*(?![\w.]))|\b(true|false)\b",
                             statement):
        if size and match.start() < size.end():
            continue  # a larger array changes nothing
        other = {"true": "false", "false": "true", "1": "0"}.get(match[0])
        yield ("constant", begin + match.start(), begin + match.end(),
               other or str(int(match[0]) + 1))
    if droppable(statement) or re.match("(break|continue);", statement):
        yield "dropped", begin, end - 1, ""
    if of_status and re.match(r"return (?!BATON_OK)", statement):
        yield "error", begin, end, "return BATON_OK;"
    block = text[end - 1:closing(text, end - 1)]
    if re.match(r"(else )?if \(", statement) and len(block) < 600 and \
            re.search(SWALLOWED, block):
        at = text.index("(", begin)
        yield "error", at + 1, closing(text, at), "false"


def sites_of_function(text, begin, end, of_status):
    """Yields the changes of a function, with the begin and the end of their statement."""
    before = None
    for first, last in statements(text, begin, end):
        jump = before and re.match("break|continue", text[first:last])
        for each in sites_of_statement(text, first, last, of_status):
            # (gcov does not count a jump, but counts the statement before it.)
            yield *each, before[0] if jump else first, last
        one, two = text[slice(*before)] if before else "", text[first:last]
        if before and droppable(one) and droppable(two):
            # Statements that do not depend on each other are not swapped: that changes
            # nothing.
            if "atomic_" in one + two or written(one).intersection(words(two)) or \
                    written(two).intersection(words(one)):
                yield "swapped", before[0], last, None, before[0], last
        before = (first, last) if text[last - 1] == ";" else None


def sites_of_file(root, path):
    """Returns all changes of a file. Each keeps the numbers of all lines, since failed
    assertions print them."""
    whole, found = (root / path).read_text(), []
    text = masked(whole)
    for body in re.finditer(r"^((?:[\w ][^\n]*\n)+)\{\n.*?^\}", text, re.S | re.M):
        of_status = "baton_status_t" in body[1].split("(")[0]
        for kind, at, to, new, first, last in sites_of_function(
                text, body.end(1) + 1, body.end(), of_status):
            if kind == "swapped":
                middle = re.search(r";\s*", text[at:to]).end() + at
                one = whole[at:middle].rstrip()
                new = whole[middle:to] + whole[at + len(one):middle] + one
            new += "\n" * (whole[at:to].count("\n") - new.count("\n"))
            rows = [text.count("\n", 0, each) + 1 for each in (at, first, last)]
            found.append(Site(path, *rows, kind, at, to, new))
    return found


def planted(root, site):
    """Returns the text of the file with the change."""
    whole = (root / site.path).read_text()
    return whole[:site.begin] + site.new + whole[site.end:]


def change_of(root, site):
    """Returns the old lines and the new lines of a change, without indentation."""
    pair = (root / site.path).read_text().split("\n"), planted(root, site).split("\n")
    differ = [i for i, (old, new) in enumerate(zip(*pair)) if old != new]
    return tuple(tuple(line.strip() for line in lines[differ[0]:differ[-1] + 1]
                       if line.strip()) for lines in pair)


def equivalents(path):
    """Yields the changes in equivalents.txt, each with its file."""
    for record in re.split(r"\n\s*\n", path.read_text()):
        yield (re.sub("(?m)^#.*\n", "", record).split(": ")[0],
               *(tuple(row[1:].strip() for row in record.split("\n")
                       if row.startswith(sign)) for sign in "-+"))


# ---- building ----------------------------------------------------------------

def flat(path):
    """Returns the path of a file as a name without slashes."""
    return str(path).replace("/", "+")


class Build:
    """The library and the tests without changes, and the way to replace one file."""

    def __init__(self, root, folder, jobs):
        self.root, self.folder, self.build = root, folder, folder / "build"
        options = ("-G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_BUILD_TESTS=ON "
                   "-DBATON_BUILD_MICROBENCH=OFF -DBATON_CUDA=OFF -DBATON_LINKED=ON")
        output_of(root, "cmake", "-S", root, "-B", self.build, *options.split(),
                  "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG")
        output_of(root, "cmake", "--build", self.build, "-j", str(jobs))
        self.commands, self.includes = collections.defaultdict(list), {}
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])  # ends in -o OBJECT -c SOURCE
            self.commands[os.path.relpath(words[-1], root)].append(
                (words[:-4] + ["-fno-lto"], words[-3]))
        # If a test includes files of the library, the test is compiled anew when one of them
        # changes. Tests also fail if they leak memory, except tests that count allocations.
        self.counting = set()
        for path in list(self.commands):
            text = (root / path).read_text()
            if re.search(r'"support/(malloc|trial)\.h"', text):
                self.counting.add(pathlib.Path(path).stem)
            names = re.findall(r'^#include "(.*\.c)"', text, re.M)
            files = {flat(each) for name in names for each in (name, "lib/" + name)
                     if each in self.commands}
            if files:
                self.includes[pathlib.Path(path).stem] = path, files
        self.library = self.link_words("test_run")
        self.library = self.library[self.library.index("libbaton.a"):]

    def sources(self, part):
        return sorted(path for path in self.commands if path.startswith(part + "/"))

    def compile(self, source, folder, *flags, at=None):
        """Compiles a file once for each of its objects (kernels have several). Returns the
        objects, or an empty list after a failure. Assertions are on, as with sanitizers."""
        objects = []
        for i, (command, _) in enumerate(self.commands[source]):
            objects.append(f"{folder / flat(source)}.{i}.o")
            if subprocess.run([*command, "-w", "-UNDEBUG", *flags, "-iquote",
                               (self.root / source).parent, "-o", objects[-1], "-c",
                               at or self.root / source],
                              cwd=self.build, check=False, **QUIET).returncode != 0:
                return []
        return objects

    @functools.cache
    def link_words(self, program):
        """Returns the words of the command that links a program in the build folder."""
        lines = output_of(self.build, "ninja", "-t", "commands", "tests/" + program)
        words = shlex.split(lines.strip().split("\n")[-1])
        at = words.index("-o")  # the command is between ": &&" and "&& :"
        return words[2:at] + words[at + 2:-2]

    def link(self, program, folder, objects, *flags):
        """Links a program with objects ahead of the library, which replace the library's own.
        A program of dropin/ gets all objects of libbaton_mpi in front of MPI; other programs
        get none of these."""
        source, files = self.includes.get(program, ("", ()))
        given = {os.path.basename(path)[:-4]: path for path in objects}
        if given.keys() & files:
            objects = self.compile(source, folder, *flags) + [
                path for name, path in given.items() if name not in files]
        else:
            source = ""
        words, in_front = [], "libbaton_mpi.so" in self.link_words(program)
        for word in self.link_words(program):
            if word == "libbaton_mpi.so":
                words += [made for path in self.sources("mpi") if flat(path) not in given
                          for _, made in self.commands[path]] + [
                              "libbaton_mpi_group.so", "libbaton.so"]
            elif re.match(r"libbaton\.(so|a)", word):
                words += self.library
            elif re.match(r"libbaton_mpi_group\.so", word):
                pass  # libbaton.a has the objects of this library
            elif not source or not word.endswith(os.path.basename(source) + ".o"):
                words.append(word)
        objects = [path for path in objects if in_front == (
            os.path.basename(path)[:4] == "mpi+") or "+" not in os.path.basename(path)]
        if program.startswith("test_") and program not in self.counting:
            words.append("-fsanitize=leak")
        return subprocess.run(
            [words[0], *objects, *words[1:], *set(flags).intersection(COVERAGE), "-o",
             folder / program], check=False, cwd=self.build, **QUIET).returncode == 0


# ---- tests -------------------------------------------------------------------

class Test:
    """An entry of ctest. It can run with another program in place of its own."""

    def __init__(self, entry, build):
        properties = {each["name"]: each["value"] for each in entry["properties"]}
        self.name, self.command = entry["name"], entry.get("command", [])
        self.environment = dict(each.split("=", 1) for each in properties["ENVIRONMENT"])
        self.built = next((word for word in self.command
                           if os.path.dirname(word) == str(build / "tests")), "")
        self.program = os.path.basename(self.built)
        self.says = properties.get("PASS_REGULAR_EXPRESSION", [""])[0]
        kind = properties.get("LABELS", [""])[0]
        self.wanted = self.built and re.match("unit|sim|mpi|hosts", kind) and \
            not re.search(r"[.]np(?!3$)|kill|survivors|hosts(?!.*[.]np3$)", self.name)

    def run(self, program, folder, patience, **environment):
        """Runs the test. Returns whether it passes within `patience` seconds."""
        fresh(folder / "tmp")
        said = folder / "said"
        process = subprocess.Popen(
            [program if word == self.built else word for word in self.command],
            cwd=folder, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=said.open("w"), stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment, "TMPDIR": folder / "tmp",
                 **environment})
        passed = False
        try:
            passed = process.wait(patience) == 0
        except subprocess.TimeoutExpired:
            process.terminate()  # this makes mpirun end its ranks
            time.sleep(1)
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:  # to end processes that the test has left behind
                if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == process.pid:
                    os.kill(int(stat.parent.name), 9)
            except OSError:
                pass
        process.wait()
        return passed and re.search(self.says, said.read_text(errors="replace"),
                                    re.S) is not None

    def measure(self, build, objects, longest):
        """Measures how long the test takes, and which lines it runs. Returns whether it
        passes."""
        kept = build.folder / "coverage" / (self.name + ".json")
        if not kept.exists() or kept.stat().st_mtime < os.stat(self.built).st_mtime:
            work = build.folder / "try" / self.name
            fresh(work)
            passed, began = False, time.monotonic()
            if build.link(self.program, work, objects, *COVERAGE):
                passed = self.run(work / self.program, work, longest, GCOV_PREFIX=work,
                                  GCOV_PREFIX_STRIP="99")
            result = [passed, time.monotonic() - began,
                      lines_run(build, work) if passed else {}]
            kept.with_suffix(".part").write_text(json.dumps(result))
            kept.with_suffix(".part").rename(kept)
            shutil.rmtree(work, ignore_errors=True)
        passed, self.seconds, self.lines = json.loads(kept.read_text())
        self.total = sum(map(len, self.lines.values()))
        self.mark = f"{self.name} {os.stat(self.built).st_mtime:.0f}"
        return passed


def lines_run(build, work):
    """Returns the lines that a test has run, by file. gcov reads them from the counters that
    the test has left in the folder."""
    data = sorted(path.name for path in work.glob("*.gcda"))
    for note in (build.folder / "coverage").glob("*.gcno"):
        if not (work / note.name).exists():
            (work / note.name).symlink_to(note)
    lines = collections.defaultdict(set)
    output = output_of(work, "gcov", "--json-format", "--stdout", *data)
    for document in output.split("\n"):
        for file in json.loads(document)["files"] if document else []:
            path = os.path.relpath(os.path.join(build.build, file["file"]), build.root)
            lines[path] |= {each["line_number"] for each in file["lines"] if each["count"]}
    return {path: sorted(lines[path]) for path in lines if path.endswith(".c")}


# ---- the campaign ------------------------------------------------------------

class Campaign:
    """The trials, and a journal of them that the next call reads."""

    def __init__(self, options):
        self.root, self.folder = (pathlib.Path(path).resolve()
                                  for path in (options.root, options.folder))
        (self.folder / "coverage").mkdir(parents=True, exist_ok=True)
        self.deadline = time.monotonic() + 60 * options.minutes
        self.jobs, self.longest = options.j, options.longest
        self.build = Build(self.root, self.folder, self.jobs)
        self.known = set(equivalents(self.root / "tests/equivalents.txt"))
        self.lock, self.originals, self.tests = threading.Lock(), {}, []
        self.journal, self.again = self.folder / "journal", options.again
        self.outcomes, self.passed = {}, collections.defaultdict(set)
        for row in self.journal.read_text().split("\n") if self.journal.exists() else []:
            self.remember(**json.loads(row or "{}"))

    def remember(self, mutant="", what="", test=""):
        if what == "passed":
            self.passed[mutant].add(test)
        elif what != "survived" or not self.again:
            self.outcomes[mutant] = what

    def note(self, mutant, what, test=""):
        row = {"mutant": mutant, "what": what, "test": test}
        with self.lock, open(self.journal, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            self.remember(**row)
        return what

    def in_time(self):
        return time.monotonic() < self.deadline

    def all_of(self, work, things):
        """Calls a function for each thing, on several threads. Returns the results. The result
        is None for things for which there was no time."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda it: work(it) if self.in_time() else None, things))

    def cover(self):
        """Measures which lines each test runs, with a library that counts them."""
        folder, build = self.folder / "coverage", self.build
        sources, last = sum(map(build.sources, PARTS), []), folder / "exit.o"
        newest = max(path.stat().st_mtime for part in PARTS
                     for path in (self.root / part).rglob("*.[ch]"))
        if not last.exists() or last.stat().st_mtime < newest:
            self.all_of(lambda path: build.compile(path, folder, *COVERAGE), sources)
            (folder / "exit.c").write_text(EXIT)
            if self.in_time():
                output_of(folder, "cc", "-c", "exit.c")
        objects = [str(path) for path in sorted(folder.glob("*.o"))]
        entries = json.loads(output_of(build.build, "ctest", "--show-only=json-v1"))
        tests = [Test(entry, build.build) for entry in entries["tests"]]
        tests = [test for test in tests if test.wanted]
        passed = self.all_of(lambda test: test.measure(build, objects, self.longest), tests)
        if None in passed:
            print("not all tests are measured yet: call this again")
            sys.exit()
        self.tests = [test for test, good in zip(tests, passed) if good]
        print("Left out, as they fail without a change, or take too long:",
              *[test.name for test, good in zip(tests, passed) if not good])

    def running(self, site):
        """Returns the tests that run a line of the statement. Tests come first that are quick,
        and run few lines of other files."""
        lines = range(site.first, site.last + 1)
        tests = [test for test in self.tests
                 if not set(lines).isdisjoint(test.lines.get(site.path, ()))]
        return sorted(tests, key=lambda test: (test.seconds + 0.3) * test.total /
                      len(test.lines[site.path]))

    def attempt(self, site):
        """Tries one mutant. Returns its outcome: "found", "survived", "equivalent", "same" if
        the mutant doesn't count, or None if there was no time."""
        change = change_of(self.root, site)
        key = f"{site.path}:{site.line}: {site.kind}: {change}"
        if (site.path, *change) in self.known:
            return "equivalent"
        if key in self.outcomes:
            return self.outcomes[key]
        own = self.folder / "try" / str(threading.get_ident())
        fresh(own)
        (own / site.path).parent.mkdir(parents=True)
        (own / site.path).write_text(planted(self.root, site))
        flags = ["-iquote", own, "-iquote", own / "lib", f"-ffile-prefix-map={own}=.",
                 f"-ffile-prefix-map={self.root}=."]
        objects = self.build.compile(site.path, own, *flags, at=own / site.path)
        with self.lock:
            if site.path not in self.originals:
                self.originals[site.path] = bytes_of(
                    self.build.compile(site.path, self.folder / "try", *flags))
        if not objects or bytes_of(objects) == self.originals[site.path]:
            return self.note(key, "same")
        linked = {}
        for test in self.running(site):
            if test.mark in self.passed[key]:
                continue
            if not self.in_time():
                return None
            if test.program not in linked:
                linked[test.program] = self.build.link(test.program, own, objects, *flags)
            if linked[test.program] and \
                    not test.run(own / test.program, own, 10 + 4 * test.seconds):
                return self.note(key, "found", test.name)
            self.note(key, "passed", test.mark)
        return self.note(key, "survived")

    def order(self, part, seed):
        """Yields the changes of a part, one for each line, in an order that the seed gives."""
        order, places = random.Random(f"{seed} {part}"), collections.defaultdict(list)
        for path in self.build.sources(part):
            for site in sites_of_file(self.root, path):
                places[site.path, site.line].append(site)
        for place in order.sample(sorted(places), len(places)):
            kind = order.choice(sorted({site.kind for site in places[place]}))
            yield order.choice([site for site in places[place] if site.kind == kind])

    def trials(self, seed, counts):
        """Tries mutants. Returns the first ones of each part that count, with outcomes."""
        orders = {part: self.order(part, seed) for part in counts}
        tried = {part: [] for part in counts}
        some = True
        while some and self.in_time():
            some = [(part, site) for part, count in counts.items()
                    for site in itertools.islice(orders[part], count - len(tried[part]))]
            outcomes = self.all_of(lambda pair: self.attempt(pair[1]), some)
            for (part, site), outcome in zip(some, outcomes):
                if outcome != "same":
                    tried[part].append((site, outcome))
        return {part: [pair for pair in tried[part] if pair[1]] for part in tried}


def report(campaign, outcomes):
    """Prints the survivors and the table. Returns the percentage of mutants that were found,
    and the number of mutants that were tried."""
    for site in [site for pairs in outcomes.values() for site, outcome in pairs
                 if outcome == "survived"]:
        tests = [test.name for test in campaign.running(site)]
        print(f"\n{site.path}:{site.line}: {site.kind}; run by {len(tests)} tests:",
              *tests[:8])
        for sign, lines in zip("-+", change_of(campaign.root, site)):
            print("".join(f"{sign} {line}\n" for line in lines), end="")
    print(f"\n{'part':18}{'tried':>8}{'found':>8}{'equivalent':>12}{'survived':>10}")
    total = collections.Counter()
    for part in [*filter(outcomes.get, PARTS), "all"]:
        counts = collections.Counter(dict(outcomes.get(part, [])).values()) or total
        total = total + counts if part != "all" else total
        print(f"{part:18}{sum(counts.values()):8}{counts['found']:8}"
              f"{counts['equivalent']:12}{counts['survived']:10}")
    share = 100 * total["found"] / max(total["found"] + total["survived"], 1)
    print(f"{share:.0f} % found")
    return share, sum(total.values())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = {"type": float, "default": 0}
    for name, settings in (
            ("root", {}), ("folder", {}), ("--seed", {"default": "1"}),
            ("--count", {"type": int, "default": 13}), ("--part", {"choices": PARTS}),
            ("-j", {"type": int, "default": 1}), ("--again", {"action": "store_true"}),
            ("--minutes", {**number, "default": 1e6}), ("--least", number),
            ("--longest", {**number, "default": 100})):
        parser.add_argument(name, **settings)
    options = parser.parse_args()
    # A mutant may take all memory. Then the kernel ends it before other processes.
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    campaign = Campaign(options)
    parts = [options.part] if options.part else list(PARTS)
    random.Random(options.seed).shuffle(parts)
    campaign.cover()
    outcomes = campaign.trials(options.seed, {
        part: options.count // len(parts) + (i < options.count % len(parts))
        for i, part in enumerate(parts)})
    share, done = report(campaign, outcomes)
    if done < options.count:
        print(f"{options.count - done} mutants are not tried yet: call this again")
    elif share < options.least:
        sys.exit(f"fewer than {options.least:g} % were found")


if __name__ == "__main__":
    main()
