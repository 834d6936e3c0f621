"""Parses the output of nvdisasm: the instructions of each kernel, and its loops. check_kernels.py uses it."""
import collections
import heapq
import re

LINE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
LABEL = re.compile(r"\.L_x_\w+")
FUNCTION = re.compile(r"\$\S+:$")  # called by the kernel, and part of its text
# Accesses of global memory (or of memory that the compiler cannot tell apart), except those with a scope, which are
# flags.
PLAIN = re.compile(r"(LD|ST)G?\.(?!\S*STRONG)")
JUMPS = {"BRA", "BRX", "BRXU", "BSYNC", "EXIT", "JMP", "JMX", "KILL", "RET"}

Instruction = collections.namedtuple("Instruction", "opcode guarded operands")
Block = collections.namedtuple("Block", "opcodes successors")


def kernels(text):
    """{mangled name: [label or Instruction, ...]} of every kernel in nvdisasm's output, with the functions it calls."""
    found, current = {}, None
    for line in text.splitlines():
        if line.startswith(".text."):
            current = found.setdefault(line[len(".text."):].rstrip(":"), [])
        elif line.startswith("\t.section"):
            current = None
        elif current is not None and (LABEL.match(line) or FUNCTION.match(line)):
            current.append(line.rstrip(":"))
        elif current is not None and (match := LINE.match(line)):
            guard, opcode, operands = match.groups()
            current.append(Instruction(opcode, guard is not None, operands.strip()))
    return found


def opcodes(code):
    """{opcode: how often} of a kernel."""
    return collections.Counter(item.opcode for item in code if isinstance(item, Instruction))


def jumps(item):
    kind = item.opcode.partition(".")[0]
    return kind in JUMPS or (kind == "CALL" and LABEL.search(item.operands) is not None)  # otherwise the call returns


def blocks_of(code):
    """The control-flow graph: blocks with the numbers of those that may follow."""
    pieces, at, meets, saved = [[]], {}, {}, {}
    for item in code:
        if isinstance(item, Instruction):
            pieces[-1].append(item)
            if item.opcode.startswith("BSSY"):  # lanes that diverge here meet again at the label
                barrier, label = item.operands.split(",")
                meets.setdefault(barrier, []).append((len(pieces) - 1, LABEL.search(label).group()))
            if item.opcode.startswith("BMOV"):  # a barrier may be kept in a register, and come back as another one
                to, source = item.operands.split(", ")
                saved.setdefault(to, []).extend(meets.get(source, []))
            if jumps(item):
                pieces.append([])
        else:
            if pieces[-1]:
                pieces.append([])
            at[item] = len(pieces) - 1
    blocks = []
    for number, piece in enumerate(pieces):
        follows = [number + 1] if number + 1 < len(pieces) else []
        if piece and jumps(piece[-1]):
            last = piece[-1]
            labels = LABEL.findall(last.operands)
            if last.opcode.startswith("BSYNC"):
                # The meeting point mostly comes next. The latest one of a barrier may belong to a part in between.
                back = [item.operands.split(", ")[1] for item in piece if item.opcode.startswith("BMOV") and
                        item.operands.startswith(last.operands + ",")]
                meeting = saved.get(back[-1], []) if back else meets.get(last.operands, [])
                begun = [label for start, label in meeting if start <= number]
                labels = [label for label in begun if at[label] == number + 1][-1:] or begun[-1:]
            # BRA P1, ...; BRA.U !UP0, ...; BRA.DIV UR4, ... are conditional too. RET R2 is not.
            conditional = last.opcode.startswith("BRA") and re.match(r"[!~]?U?[PR]\w", last.operands)
            stays = last.guarded or conditional or last.opcode.startswith("BSYNC") and not labels
            follows = [at[label] for label in labels] + (follows if stays else [])
        blocks.append(Block([item.opcode for item in piece], follows))
    return blocks


def dominators(blocks):
    """(the immediate dominator, the predecessors) of each reachable block, after Cooper, Harvey and Kennedy."""
    order, seen, stack = [], {0}, [(0, iter(blocks[0].successors))]
    while stack:
        block, rest = stack[-1]
        new = next((to for to in rest if to not in seen), None)
        if new is None:
            order.append(stack.pop()[0])
        else:
            seen.add(new)
            stack.append((new, iter(blocks[new].successors)))
    rank = {block: i for i, block in enumerate(order)}
    before = collections.defaultdict(list)
    for block in order:
        for to in blocks[block].successors:
            before[to].append(block)
    above = {0: 0}

    def meet(a, b):
        while a != b:
            a, b = (above[a], b) if rank[a] < rank[b] else (a, above[b])
        return a

    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            known = [other for other in before[block] if other in above]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            changed |= above.get(block) != new
            above[block] = new
    return above, before


def loops(blocks):
    """The natural loops as sets of blocks, smallest first. Blocks that the compiler moved out of the way (the code
    of a diverged warp) jump backwards, but make no loop."""
    above, before = dominators(blocks)

    def dominates(a, b):
        while b not in (a, 0):
            b = above[b]
        return a == b

    found = {}
    for tail in above:
        for head in blocks[tail].successors:
            if not dominates(head, tail):
                continue
            body, work = found.setdefault(head, {head}), [tail]
            while work:
                block = work.pop()
                if block not in body:
                    body.add(block)
                    work.extend(before[block])
    return sorted(found.values(), key=len)


Accesses = collections.namedtuple("Accesses", "loads stores narrow_loads narrow_stores")


def accesses(blocks, numbers):
    """The numbers of 16-byte and of narrower accesses of global memory in some of the blocks."""
    kinds = collections.Counter((opcode[:2], ".128" in opcode) for number in numbers
                                for opcode in blocks[number].opcodes if PLAIN.match(opcode))
    return Accesses(kinds["LD", True], kinds["ST", True], kinds["LD", False], kinds["ST", False])


def part_of(code, begin=0):
    """The kernel itself, or the function that it calls whose label is at `begin`: functions stand behind the kernel."""
    end = next((i for i in range(begin + 1, len(code)) if isinstance(code[i], str) and code[i].startswith("$")), len(code))
    return code[begin:end]


def row_accesses(code):
    """The same for all loops that move rows: the innermost loops around a 16-byte access, with at least four of them.
    Functions that the kernel calls are left out."""
    blocks = blocks_of(part_of(code))
    every, reached = loops(blocks), dominators(blocks)[0]
    rows = set()
    for number in range(len(blocks)):
        if sum(accesses(blocks, [number])[:2]) == 0:
            continue
        if number not in reached:
            raise ValueError("no way leads to a 16-byte access: sass.py does not know all jumps of this machine")
        body = next((body for body in every if number in body), set())
        if sum(accesses(blocks, body)[:2]) >= 4:
            rows |= body
    return accesses(blocks, rows)


# ---- Instructions of a warp that posts puts (src/device/policy/cuda/puts.h)

POST = re.compile(r"\$\S*cuda_put_queue4post")
CALL = "CALL.post"
# What a successful call passes: slots are reserved, WQEs stored and published. If it rings, also the doorbell.
POSTS = [r"ATOMG\.E\.ADD\.64", r"STG?\.E\.128", r"STG?\.E\.64\.STRONG", "RET"]
RINGS = [*POSTS[:3], r"STG?\.E\.64\.MMIO", "RET"]
# Instructions that wait for memory at system scope: those that return a value, and fences.
WAITS = re.compile(r"(ATOM|LD)G?\.\S*STRONG\.SYS|MEMBAR\.\S*SYS")

Way = collections.namedtuple("Way", "instructions waits")
Posting = collections.namedtuple("Posting", "loop call ring")


def shortest(blocks, number, place, stops):
    """The path with the fewest instructions that starts at this place of a block and passes, in this order,
    instructions that match `stops`, up to the last of them. None if there is no such path."""
    known, heap = set(), [(0, 0, 0, number, place)]
    while heap:
        count, waits, passed, number, place = heapq.heappop(heap)
        if passed == len(stops):
            return Way(count, waits)
        if (passed, number, place) in known:
            continue
        known.add((passed, number, place))
        rest = blocks[number].opcodes[place:]
        found = next((i for i, opcode in enumerate(rest) if re.match(stops[passed], opcode)), None)
        taken = rest if found is None else rest[:found + 1]
        count, waits = count + len(taken), waits + sum(map(bool, map(WAITS.match, taken)))
        if found is not None:
            heapq.heappush(heap, (count, waits, passed + 1, number, place + found + 1))
            continue
        for to in blocks[number].successors:
            heapq.heappush(heap, (count, waits, passed, to, 0))
    return None


def posting(code):
    """For a kernel that calls post(): the shortest paths from one call to the next one of the same loop, and through
    a call that waits for nobody, without a doorbell and with one. None if the kernel does not post."""
    code = [item._replace(opcode=CALL) if isinstance(item, Instruction) and item.opcode.startswith("CALL") and
            POST.search(item.operands) else item for item in code]
    begin = next((i for i, item in enumerate(code) if isinstance(item, str) and POST.match(item)), None)
    if begin is None:
        return None
    function, blocks = blocks_of(part_of(code, begin)), blocks_of(part_of(code))
    calls = [(number, place) for number, block in enumerate(blocks) for place, opcode in enumerate(block.opcodes)
             if opcode == CALL]
    loops_back = filter(None, (shortest(blocks, number, place + 1, [CALL]) for number, place in calls))
    found = Posting(min(loops_back, default=None), *(shortest(function, 0, 0, stops) for stops in (POSTS, RINGS)))
    if None in found:
        raise ValueError("no way leads through post(): sass.py does not know all jumps of this machine")
    return found
