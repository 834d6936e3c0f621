// The order of search results: guides come first, then interfaces and the reference, then what explains the inside.
// Sphinx puts this before its own search, and takes all of the numbers below from here.
const SHELVES = [
  [/^(index$|docs\/guide\/)/, 20],
  [/^(interface|cpp|python|programs|docs\/reference)\//, 10],
  [/^(docs\/decisions|tests|src|examples|include)\/|^CHANGELOG$|^docs\/internals\/notebook$/, -10],
];

var Scorer = {
  score: ([page, , , , score]) => score + (SHELVES.find(([pattern]) => pattern.test(page)) ?? [null, 0])[1],
  // The rest is as Sphinx has it.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
