"""The names and keywords that type checkers see are those that calls take."""

import inspect
import re
import typing
import unittest

from support import moecomm
from moecomm import casts, checks, combine_arguments, dispatch_arguments, handle, handle_queries, handle_refusals, layouts
from moecomm import _native, names, options, parts, payloads, prepared, settings

# Literal: the tables that calls look up.
TABLES = {
    names.Backend: (settings.BACKENDS,),
    names.Mode: (settings.MODES, handle_queries.HANDLE_MODES),
    names.LayoutName: (layouts.LAYOUTS,),
    names.IndexType: (handle.INDEX_TYPES,),
    names.Duplicates: (handle.DUPLICATES,),
    names.OnFault: (handle_refusals.ON_FAULT,),
    names.RowType: (checks.ROW_TYPES,),
    names.CastType: (casts.CASTS,),
    names.ScaleLayout: (layouts.SCALE_LAYOUTS,),
    names.PayloadLayout: (payloads.PAYLOAD_LAYOUTS,),
    names.Ids: (dispatch_arguments.ID_KINDS,),
    names.Weights: (combine_arguments.WEIGHTS,),
    names.Wire: (combine_arguments.WIRES,),
    names.Transport: (settings.REMOTE_TRANSPORTS,),
    names.LogLevel: (settings.LOG_LEVELS,),
}


def keywords(function, *left_out):
    """The keywords of a function but for these."""
    return set(inspect.signature(function).parameters) - {"self", *left_out}


def documented(function):
    """The names at the beginnings of the rows of a docstring."""
    rows = re.findall(r"^ {8}(\w+(?:, \w+)*)  ", function.__doc__, re.M)
    return {name for row in rows for name in row.split(", ")}


class NamesTest(unittest.TestCase):
    def test_literals_are_the_names_that_calls_look_up(self):
        for literal, tables in TABLES.items():
            for table in tables:
                with self.subTest(literal=literal):
                    self.assertEqual(sorted(typing.get_args(literal)), sorted(name for name in table if name is not None))

    def test_every_literal_has_a_table(self):
        literals = {name for name, found in vars(names).items() if typing.get_origin(found) is typing.Literal}
        tested = {name for name, found in vars(names).items() if any(found is literal for literal in TABLES)}
        self.assertEqual(literals, tested)


class KeywordsTest(unittest.TestCase):
    def test_dispatch(self):
        make = dispatch_arguments.DispatchArguments.make
        taken = keywords(make, "rows", "out_rows", "index_type", "stays_in_view")
        self.assertEqual(taken, set(options.DispatchOptions.__annotations__))
        self.assertEqual(set(options.DISPATCH_DEFAULTS), set(options.DispatchOptions.__annotations__))

    def test_combine(self):
        taken = keywords(combine_arguments.CombineArguments.make, "rows", "out", "capacity")
        self.assertEqual(taken, set(options.CombineOptions.__annotations__))
        self.assertEqual(set(options.COMBINE_DEFAULTS), set(options.CombineOptions.__annotations__))

    def test_calls_have_few_keywords(self):
        for known in (options.DispatchOptions, options.CombineOptions):
            self.assertLessEqual(len(known.__annotations__) + len(["stream"]), 13)

    def test_parts_have_a_field_for_each_of_the_c_structs(self):
        renamed = {"rows": "in", "layout": "outLayout", "ids": "idKind"}
        for part, struct, others in (
            (parts.Cast, _native.moeCast_t, {"exact", "weights_on_input", "flags"}),
            (parts.Describe, _native.moeDescribe_t, set()),
            (parts.Payload, _native.moePayload_t, {"inRowStride", "inWordStride", "outRowStride", "outWordStride"}),
            (parts.Ready, _native.moeReady_t, set()),
            (parts.Grads, _native.moeGrads_t, set()),
        ):
            fields = {renamed.get(name) or prepared._field_of(name) for name in set(part._fields) - others}
            known = {name for name, _ in struct._fields_} - {"size"} - others
            self.assertEqual(fields, known, part.__name__)

    def test_handle(self):
        taken = keywords(moecomm.Handle.__init__, "comm", "experts", "topk")
        self.assertEqual(taken, set(options.HandleOptions.__annotations__))

    def test_handle_has_the_same_types(self):
        hints = typing.get_type_hints(options.HandleOptions)
        scope = {**vars(handle), **vars(names), "Communicator": moecomm.Communicator}
        for name, found in typing.get_type_hints(moecomm.Handle.__init__, scope).items():
            if name in hints:
                self.assertEqual(found, hints[name], name)

    def test_communicator(self):
        popped = set(re.findall(r'settings\.pop\("(\w+)"', inspect.getsource(settings.make_config)))
        self.assertEqual(
            popped | set(settings.NUMBERS) | set(settings.TEXTS), set(options.CommunicatorOptions.__annotations__)
        )

    def test_documentation_names_every_option_and_no_other(self):
        for call, known, arguments in (
            (moecomm.Handle.dispatch, options.DispatchOptions, {"rows", "out_rows"}),
            (moecomm.Handle.combine, options.CombineOptions, {"rows", "out"}),
        ):
            with self.subTest(call=call.__name__):
                words = set(re.findall(r"\w+", call.__doc__))
                self.assertEqual(set(known.__annotations__) - words, set())
                self.assertEqual(documented(call) - arguments - set(known.__annotations__), set())

    def test_documentation_of_parts_names_every_field(self):
        for part in (parts.Cast, parts.Describe, parts.Payload, parts.Ready, parts.Grads):
            rows = re.findall(r"^ {4}(\w+)  ", part.__doc__, re.M)
            self.assertEqual(sorted(rows), sorted(part._fields), part.__name__)

    def test_documentation_of_makers_names_every_option(self):
        for maker, known in (
            (moecomm.Communicator, options.CommunicatorOptions),
            (moecomm.Handle, options.HandleOptions),
        ):
            words = set(re.findall(r"\w+", maker.__doc__))
            self.assertEqual(set(known.__annotations__) - words, set(), maker.__name__)


if __name__ == "__main__":
    unittest.main()
