"""What the Python package declares for its users, with its docstrings, as its source says it. python_pages.py makes pages
of it.

Nothing is imported: the adapters for torch, JAX, vLLM and SGLang have pages where none of these is installed.
"""
import ast
import dataclasses
import inspect
import pathlib
import re

# Pages in the order of the index: name, title, module as its users write it, what the module of each name is.
CONCERNS = [
    ("communicator", "Communicators", "moecomm", {
        "comm": ["Communicator", "unique_id", "memory_size", "limits", "version", "error_string", "Peer", "MemorySize"],
        "membership": ["Info", "Limits"], "_library": ["library"]}),
    ("layout", "The layout of a dispatch", "moecomm", {"dispatch_layout": ["dispatch_layout"]}),
    ("handle", "Handles: route, dispatch, combine", "moecomm", {"handle": ["Handle"]}),
    ("plan", "Plans: calls that are prepared once", "moecomm", {"plan": ["Plan"]}),
    ("parts", "Arguments of dispatch and combine", "moecomm", {
        "parts": ["Cast", "Describe", "Payload", "Grads", "Ready"]}),
    ("answers", "What handles tell", "moecomm", {
        "handle_answers": ["Counts", "DeviceCounts", "HandleView", "Arrivals", "Statistics"]}),
    ("window", "Window memory", "moecomm", {"window": ["WindowMemory"]}),
    ("errors", "Errors", "moecomm", {
        "errors": ["MoeError", "InvalidArgument", "InvalidUsage", "CudaError", "SystemFailure", "RemoteError", "Timeout",
                   "Aborted", "Unsupported", "InProgress", "InternalError"]}),
    ("names", "Names that keywords take", "moecomm.names", {
        "names": ["Backend", "Mode", "LayoutName", "IndexType", "Duplicates", "OnFault", "RowType", "CastType",
                  "ScaleLayout", "PayloadLayout", "Ids", "Weights", "Wire", "Transport", "LogLevel"]}),
    ("torch", "torch: tensors and gradients", "moecomm.torch", {
        "torch.groups": ["communicator"], "torch.dispatcher": ["Dispatcher", "Dispatched"]}),
    ("torch-memory", "torch: window memory", "moecomm.torch", {
        "torch.memory": ["window_tensor", "WindowTensor"], "torch.pool": ["window_pool", "release_window_pool"]}),
    ("jax", "JAX", "moecomm.jax", {
        "jax.groups": ["communicators", "Communicators"], "jax.dispatcher": ["Dispatcher", "Dispatched"]}),
    ("deep-ep", "DeepEP: Buffer", "moecomm.deep_ep", {
        "deep_ep.buffer": ["Buffer"], "deep_ep.dispatch_handle": ["DispatchHandle"],
        "deep_ep.low_latency": ["LowLatencyHandle"]}),
    ("deep-ep-elastic", "DeepEP: ElasticBuffer", "moecomm.deep_ep", {"deep_ep.elastic": ["ElasticBuffer", "EPHandle"]}),
    ("deep-ep-settings", "DeepEP: settings and events", "moecomm.deep_ep", {
        "deep_ep.settings": ["configure", "Config"], "deep_ep.events": ["EventHandle", "EventOverlap"],
        "deep_ep": ["install", "topk_idx_t"]}),
    ("vllm", "vLLM", "moecomm.vllm", {
        "vllm": ["plugin", "install", "build", "Classes", "install_cpu", "build_cpu", "CpuClasses"],
        "interfaces": ["MissingInterface"], "vllm.manager": ["Manager", "HtManager", "LlManager"],
        "vllm.common": ["PrepareAndFinalize"], "vllm.standard": ["Standard"], "vllm.batched": ["Batched"],
        "vllm.cpu": ["CpuCommunicator", "CpuStandard"]}),
    ("sglang", "SGLang", "moecomm.sglang", {
        "sglang": ["plugin", "install", "build", "destroy", "suspend", "resume", "checkpoint_prepare",
                   "checkpoint_restore", "recover"],
        "sglang.dispatcher": ["Dispatcher"]}),
]
PACKAGES = ["", "torch", "jax", "deep_ep", "vllm", "sglang"]  # whose __all__ must be on pages
TERM = re.compile(r"^(\S+(?:, \S+)*) {2,}(\S.*)$")
DIVIDER = re.compile(r"^ *# -{2,} (.+?) -{2,}$")
ONLY_THERE = {"self", "cls"}
MADE_BY_LIBRARY = {"Route", "Handle"}  # a constructor that takes one is not for users
SHOWN_AS = {"Membership": "Communicator"}  # the one class of that kind that users have
PARTS = "parts"  # the module of tuples that users make
# What other modules of the package call. Users have no reason to.
INTERNAL = {"Handle.take_part", "Handle.share_calls", "Handle.hears_at_once", "Dispatcher.take_part", "Dispatcher.stream",
            "Dispatcher.rank_of", "Communicators.of", "Communicators.lock_of", "Buffer.grow", "Buffer.tell_refusal"}


@dataclasses.dataclass
class Entry:
    kind: str  # class, exception, function, method, property, attribute, data, type
    name: str
    line: int
    module: "Module"
    text: str  # the docstring
    home: str = ""  # the module where users find it
    signature: str = ""  # with parentheses; of an attribute or data: the type
    parameters: list = dataclasses.field(default_factory=list)  # names
    options: str = ""  # the name that stands for parameters of another call
    optional: list = dataclasses.field(default_factory=list)  # the names of these
    bases: list = dataclasses.field(default_factory=list)  # as they are written, without those that are merged
    decorators: list = dataclasses.field(default_factory=list)  # staticmethod, classmethod
    section: str = ""
    members: list = dataclasses.field(default_factory=list)
    is_tuple: bool = False


@dataclasses.dataclass
class Page:
    name: str
    title: str
    module: str  # as users write it
    entries: list


class Module:
    """A file of the package."""

    def __init__(self, package, name):
        self.name = name
        path = package / name.replace(".", "/")
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.lines = self.path.read_text().split("\n")
        self.tree = ast.parse("\n".join(self.lines))
        self.is_package = path.is_dir()
        self.defined = {}
        for node in self.tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.defined[node.targets[0].id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.defined[node.target.id] = node
        self.imported = {}  # name: (module, its name there)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (self._origin(node), alias.name)

    def _origin(self, node):
        """The module of the package that an import names."""
        parts = self.name.split(".") if self.name else []
        up = node.level - 1 if self.is_package else node.level
        return ".".join([*(parts[:-up] if up else parts), *([node.module] if node.module else [])])

    def section(self, line, since):
        """The divider above a line."""
        found = [match[1] for match in map(DIVIDER.match, self.lines[since:line]) if match]
        return found[-1] if found else ""

    def remark(self, line):
        """The comment above a line."""
        above = []
        while line >= 2 and re.match(r"^\s*# ", self.lines[line - 2]):
            line -= 1
            above.insert(0, self.lines[line - 1].strip()[2:])
        return "\n".join(above)


def docstring(node):
    return inspect.cleandoc(ast.get_docstring(node) or "")


def terms(text):
    """What a docstring describes in columns: names, and their descriptions."""
    found, goes_on = {}, None
    for line in text.split("\n"):
        match = TERM.match(line)
        if match:
            goes_on = match[1].split(", ")
            found |= dict.fromkeys(goes_on, match[2])
        elif goes_on and line.startswith("  "):
            found |= dict.fromkeys(goes_on, f"{found[goes_on[0]]} {line.strip()}")
        else:
            goes_on = None
    return found


class Shown(ast.NodeTransformer):
    """Types as the site shows them: with full names of what has a page, and without names that only a module knows."""

    def __init__(self, reader, module):
        self.reader, self.module = reader, module

    def visit_Constant(self, node):  # noqa: N802
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) and node.value.isidentifier() and \
            node.value[0].isupper() else node

    def visit_Subscript(self, node):  # noqa: N802
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return node
        return self.generic_visit(node)

    def visit_Attribute(self, node):  # noqa: N802
        """errors.MoeError, where errors is a module of the package."""
        where = ".".join(filter(None, self.module.imported.get(ast.unparse(node.value), ("", ""))))
        if ast.unparse(node.value) in self.module.imported and self.reader.exists(where):
            public = self.reader.public.get((where, node.attr))
            if public:
                return ast.parse(f"{public}.{node.attr}", mode="eval").body
        return node

    def visit_Name(self, node):  # noqa: N802
        if node.id in SHOWN_AS:
            return ast.parse(f"moecomm.{SHOWN_AS[node.id]}", mode="eval").body
        origin, name = self.reader.origin(self.module, node.id)
        public = self.reader.public.get((origin.name, name)) if origin else None
        if public:
            return ast.parse(f"{public}.{name}", mode="eval").body
        found = origin.defined.get(name) if origin else None
        if isinstance(found, ast.Assign) and isinstance(found.value, ast.Subscript):
            return Shown(self.reader, origin).visit(ast.parse(ast.unparse(found.value), mode="eval").body)
        return node


class Reader:
    def __init__(self, package):
        self.package, self.modules = package, {}
        self.public = {}  # (module, name): the module where users find it
        for _, _, shown, names in CONCERNS:
            exports = exported(self.module(shown.partition(".")[2]))
            for module, listed in names.items():
                self.public |= {(module, name): shown if name in exports else f"moecomm.{module}" for name in listed}
        self.defaults = self._defaults()

    def module(self, name):
        if name not in self.modules:
            self.modules[name] = Module(self.package, name)
        return self.modules[name]

    def exists(self, name):
        path = self.package / name.replace(".", "/")
        return path.is_dir() or path.with_suffix(".py").is_file()

    def origin(self, module, name):
        """(module, name) where something is defined; (None, name) outside of the package."""
        while name not in module.defined:
            if name not in module.imported:
                return None, name
            where, name = module.imported[name]
            if not self.exists(where):
                return None, name
            module = self.module(where)
        return module, name

    def _defaults(self):
        """Of the keywords in each TypedDict, as the code that reads them says it."""
        options = self.module("options")
        found = {}
        for name in ("DISPATCH_DEFAULTS", "COMBINE_DEFAULTS"):
            calls = [node for node in ast.walk(options.defined[name].value) if isinstance(node, ast.Call)
                     and ast.unparse(node.func) == "dict"]
            found[name.split("_")[0].title() + "Options"] = {
                keyword.arg: ast.unparse(keyword.value) for call in calls for keyword in call.keywords}
        make = next(node for node in self.module("handle").defined["Handle"].body
                    if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        values = dict(zip([one.arg for one in make.args.args][-len(make.args.defaults):], make.args.defaults))
        found["HandleOptions"] = found["RouteOptions"] = {name: ast.unparse(value) for name, value in values.items()}
        settings = self.module("settings")
        numbers = settings.defined["NUMBERS"].value
        known = {key.value: ast.unparse(value.elts[1]) for key, value in zip(numbers.keys, numbers.values)}
        for call in ast.walk(settings.tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "settings.pop" and len(call.args) == 2 and \
                    isinstance(call.args[0], ast.Constant):
                known[call.args[0].value] = ast.unparse(call.args[1])
        return found | dict.fromkeys(("SizeOptions", "GroupOptions", "CommunicatorOptions"), known)

    # ---- Types and signatures ----------------------------------------------------------------------------------------

    def shown(self, node, module):
        copy = ast.parse(ast.unparse(node), mode="eval").body
        return ast.unparse(Shown(self, module).visit(copy))

    def keywords(self, module, options):
        """[(name, type, default)] of a TypedDict."""
        home, name = self.origin(module, options)
        node = home.defined[name]
        found = []
        for base in node.bases:
            if self.origin(home, base.id)[0]:
                found += self.keywords(home, base.id)
        for field in node.body:
            if isinstance(field, ast.AnnAssign):
                text = ast.unparse(field.annotation)
                value = self.defaults.get(name, {}).get(field.target.id)
                value = value or ("None" if text == "Any" or text.startswith("Optional") else "...")
                found.append((field.target.id, self.shown(field.annotation, home), value))
        return found

    def signature(self, node, module, text):
        """(text, names, the name of **options if it stands for more, the names of these) of a function's parameters.
        `text`: its docstring. Where that describes **options, the signature does not list them."""
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
        shown, names, more = [], [], []

        def add(argument, default, stars=""):
            one = stars + argument.arg
            if argument.annotation and not (stars and ast.unparse(argument.annotation) == "Any"):
                one += f": {self.shown(argument.annotation, module)}"
            if default is not None:
                value = "..." if isinstance(default, ast.Name) else ast.unparse(default)
                one += f" = {value}" if argument.annotation else f"={value}"
            shown.append(one)
            if not stars:
                names.append(argument.arg)

        for argument, default in zip(plain, defaults):
            if argument.arg not in ONLY_THERE:
                add(argument, default)
        unpacked = self.unpacked(arguments.kwarg)
        if arguments.vararg:
            add(arguments.vararg, None, "*")
        elif arguments.kwonlyargs or (unpacked and arguments.kwarg.arg not in terms(text)):
            shown.append("*")
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
            add(argument, default)
        stands = bool(unpacked) and arguments.kwarg.arg in terms(text)
        for name, kind, value in self.keywords(module, unpacked) if unpacked else []:
            if name not in names:
                more.append(name)
                shown += [] if stands else [f"{name}: {kind} = {value}"]
        if stands:
            shown.append(f"**{arguments.kwarg.arg}")
        elif not unpacked and arguments.kwarg:
            add(arguments.kwarg, None, "**")
        returns = f" -> {self.shown(node.returns, module)}" if node.returns else ""
        return f"({', '.join(shown)}){returns}", names, arguments.kwarg.arg if stands else "", more

    @staticmethod
    def unpacked(argument):
        """The TypedDict of **options: Unpack[TypedDict]."""
        match = re.fullmatch(r"Unpack\[(\w+)\]", ast.unparse(argument.annotation)) if argument and argument.annotation \
            else None
        return match[1] if match else ""

    # ---- Entries -----------------------------------------------------------------------------------------------------

    def entry(self, name, where):
        module, name = self.origin(self.module(where), name)
        node = module.defined[name]
        if isinstance(node, ast.ClassDef):
            made = self.class_of(node, module)
        elif isinstance(node, ast.FunctionDef):
            made = self.function(node, module, "function")
        else:
            made = self.data(node, module)
        made.home = self.public[module.name, name]
        return made

    def data(self, node, module):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        is_type = ast.unparse(node.value).startswith("Literal[")
        return Entry("type" if is_type else "data", target.id, node.lineno, module, module.remark(node.lineno),
                     signature=ast.unparse(node.value))

    def function(self, node, module, kind):
        decorators = [ast.unparse(one) for one in node.decorator_list]
        kind = "property" if "property" in decorators else kind
        signature, *names = self.signature(node, module, docstring(node))
        if kind == "property":
            signature = self.shown(node.returns, module) if node.returns else ""
        parameters, options, optional = names
        return Entry(kind, node.name, node.lineno, module, docstring(node), "", signature, parameters, options, optional,
                     decorators=[one for one in decorators if one in ("staticmethod", "classmethod")])

    def bases(self, node, module):
        """(those that have pages or are of elsewhere, those whose members are shown as the class's own)."""
        listed, merged = [], []
        for base in node.bases:
            text = ast.unparse(base)
            home, name = self.origin(module, text)
            if home and (home.name, name) not in self.public:
                merged.append((home.defined[name], home))
            elif text not in ("NamedTuple", "Exception") and not text.startswith("TypedDict"):
                listed.append(self.shown(base, module))
        return listed, merged

    def class_of(self, node, module):
        listed, merged = self.bases(node, module)
        base = [ast.unparse(one) for one in node.bases]
        made = Entry("class", node.name, node.lineno, module, docstring(node), bases=listed,
                     is_tuple="NamedTuple" in base)
        if "Exception" in base or any(one.endswith(("Error", "MoeError")) for one in listed):
            made.kind = "exception"
        made.members = self.members(node, module)
        own = {member.name for member in made.members}
        for base_node, home in merged:
            for member in self.members(base_node, home):
                if member.name not in own:
                    made.members.append(member)
                    own.add(member.name)
        made.members = [one for one in made.members if f"{made.name}.{one.name}" not in INTERNAL]
        make = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if make is not None and made.kind == "class":
            types = {name.id for argument in make.args.args if argument.annotation
                     for name in ast.walk(argument.annotation) if isinstance(name, ast.Name)}
            if not types & MADE_BY_LIBRARY:
                made.signature, made.parameters, made.options, made.optional = self.signature(
                    make, module, docstring(node))
                made.text = f"{made.text}\n\n{docstring(make)}".strip()
        elif made.is_tuple and module.name == PARTS:
            made.parameters = [member.name for member in made.members if member.kind == "attribute"]
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            made.signature = "(" + ", ".join(
                f"{one.target.id}: {self.shown(one.annotation, module)}" +
                (f" = {ast.unparse(one.value)}" if one.value else "") for one in fields) + ")"
        return made

    def members(self, node, module):
        """Public ones, in their order."""
        found = []
        is_tuple = "NamedTuple" in [ast.unparse(one) for one in node.bases]
        about = terms(docstring(node)) if is_tuple else {}
        for one in node.body:
            name = getattr(one, "name", "")
            if isinstance(one, ast.AnnAssign) and is_tuple:
                found.append(Entry("attribute", one.target.id, one.lineno, module, about.get(one.target.id, ""),
                                   signature=self.shown(one.annotation, module)))
            elif isinstance(one, ast.FunctionDef) and not name.startswith("_") and not self.is_setter(one) and \
                    ast.unparse(one.body[-1]) != "raise NotImplementedError":  # what a mixin wants of its class
                found.append(self.function(one, module, "method"))
                found[-1].section = module.section(one.lineno, node.lineno)
            elif isinstance(one, ast.Assign) and isinstance(one.value, ast.Name):
                same = next((member for member in found if member.name == one.value.id), None)
                if same is not None:
                    found.append(dataclasses.replace(same, name=one.targets[0].id, line=one.lineno, parameters=[],
                                                     text=f"The same as {same.name}()."))
        return found

    @staticmethod
    def is_setter(node):
        return any(ast.unparse(one).endswith(".setter") for one in node.decorator_list)


def complaints(entry, owner=None):
    """What the docstrings lack: texts, and parameters or fields that none names; and what they describe of nothing."""
    name = f"{owner.name}.{entry.name}" if owner else entry.name
    where = f"{entry.module.path}:{entry.line}: {name}"
    if not entry.text:
        yield f"{where} has no docstring" if entry.kind != "attribute" else f"{where} is not in its class's docstring"
        return
    texts = entry.text + (owner.text if owner else "")
    for parameter in (*entry.parameters, *([] if entry.options else entry.optional)):
        if not parameter.startswith("_") and not re.search(rf"\b{parameter}\b", texts):
            yield f"{where}: the docstring does not say what {parameter} is"
    if entry.kind in ("function", "method"):
        for term in terms(entry.text):
            if term.isidentifier() and term not in (*entry.parameters, *entry.optional, entry.options):
                yield f"{where}: the docstring describes {term}, which is no parameter"
    for member in entry.members:
        yield from complaints(member, entry)


def read(package):
    """The pages, with what the package declares. Raises SystemExit with a line for each thing that lacks a page or a
    text."""
    reader = Reader(pathlib.Path(package))
    pages = [Page(name, title, shown, [reader.entry(one, where) for where, listed in names.items() for one in listed])
             for name, title, shown, names in CONCERNS]
    wrong = [line for page in pages for entry in page.entries for line in complaints(entry)]
    for name in PACKAGES:
        module = reader.module(name)
        for one in exported(module):
            home, origin = reader.origin(module, one)
            if (home.name if home else name, origin) not in reader.public and one != "MissingInterface":
                wrong.append(f"{module.path}: {one} is in __all__, but on no page")
    if wrong:
        raise SystemExit("\n".join(dict.fromkeys(wrong)))
    return pages


def exported(module):
    """The names in __all__."""
    node = module.defined.get("__all__")
    return ast.literal_eval(node.value) if node is not None else []
