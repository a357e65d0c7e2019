"""The two trees of Algorithm 1 (Zhang et al. 2021), and the proof that they hide what they should.

    T1 carries u_l + δ_l, T2 carries δ_l; a party adds what its children sent to its own and passes one
    message on. The root subtracts the second sum from the first.

So a party sees one sum for each of its children in each tree, over the child's whole subtree. Parties are
put in an order 0 … q−1, the root first, the others by name. With i & (i − 1), i without its lowest set bit:

    binomial   T1: i → i & (i − 1)                      about log2 q hops, and at most that many messages
               T2: i → ((i − 1) & (i − 2)) + 1, 1 → 0   the same shape over the others, one place further
    flat       T1: i → 0                                one hop; T2 knows no data and may run ahead
               T2: as above

Why it hides: the root has a single child in T2, so of the masks it knows only their sum. Every other party
adds up for others in one tree at most: in T1 the even ones, in T2 the odd ones. So it sees masked scores or
masks, never both. Subtrees of more than one party begin at an even place in T1 and at an odd one in T2, so
none is in both ("totally different"). None of this is taken on trust: `require_hidden` runs the span test for
every party on whatever trees a party is about to use (`secure_sum.TreeScheme`).

Masks live in Z_2^64, where 2 has no inverse, while the test eliminates over the rationals. That is enough:
the subtrees of two trees are two laminar families, whose incidence matrix is totally unimodular (Edmonds
1970), so that no combination loses its masks modulo a power of two without losing them altogether.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from common.crypto.linear_forms import LinearForm, Row, mask_free, spanned_by
from common.errors import LocalProtocolError, Refused

TreeName: TypeAlias = Literal["T1", "T2"]
TreeShape: TypeAlias = Literal["flat", "binomial"]


@dataclass(frozen=True, slots=True)
class Tree:
    """Who passes its sum on to whom.

    Attributes:
        root: Where the sum arrives.
        parents: The next party of each party but the root.

    Raises:
        LocalProtocolError: Some party's way does not end at the root.
    """

    root: str
    parents: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.root in self.parents or any(self.depth(party) is None for party in self.parents):
            raise LocalProtocolError(f"the sums of some parties do not arrive at {self.root!r}: not a tree")

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the root first, then by name."""
        return (self.root, *sorted(self.parents))

    def depth(self, party: str) -> int | None:
        """Return the hops from a party to the root, None when it never arrives."""
        hops = 0
        while party != self.root:
            if hops == len(self.parents) or party not in self.parents:
                return None
            party, hops = self.parents[party], hops + 1
        return hops

    def children(self, party: str) -> tuple[str, ...]:
        """Return those whose sums a party receives, by name."""
        return tuple(sorted(child for child, parent in self.parents.items() if parent == party))

    def subtree(self, party: str) -> frozenset[str]:
        """Return the parties whose contributions are in the sum that a party passes on."""
        return frozenset({party}.union(*(self.subtree(child) for child in self.children(party))))

    def leaves_first(self) -> tuple[str, ...]:
        """Return all parties in an order in which children come before their parents."""
        return tuple(sorted(self.parties, key=lambda party: -(self.depth(party) or 0)))


@dataclass(frozen=True, slots=True)
class TreePair:
    """The trees of one root.

    Attributes:
        scores: T1, over which u + δ goes.
        masks: T2, over which δ goes.
    """

    scores: Tree
    masks: Tree

    def __post_init__(self) -> None:
        if self.scores.parties != self.masks.parties:
            raise LocalProtocolError("both trees of an aggregation must join the same parties at one root")

    @property
    def root(self) -> str:
        """Who learns the sum."""
        return self.scores.root

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the root first."""
        return self.scores.parties

    @property
    def hides_scores(self) -> bool:
        """False for two parties: the sum without one's own part is the other's."""
        return len(self.parties) > 2

    def tree(self, name: TreeName) -> Tree:
        """Return T1 or T2."""
        return self.scores if name == "T1" else self.masks

    def held_by(self, coalition: Collection[str]) -> list[LinearForm]:
        """Return the linear forms that parties see together, their own scores and masks included."""
        held = []
        for party in sorted(coalition):
            held += [self._form({party}, set()), self._form(set(), {party})]
            for child in self.scores.children(party):
                below = self.scores.subtree(child)
                held.append(self._form(below, below))
            held += [self._form(set(), self.masks.subtree(child)) for child in self.masks.children(party)]
        return held

    def learns(self, coalition: Collection[str]) -> list[Row]:
        """Return a basis of the sums of scores that parties can compute together, in the order `parties`."""
        return mask_free(self.held_by(coalition))

    def may_learn(self, coalition: Collection[str]) -> list[tuple[int, ...]]:
        """Return what parties may know together: each its own scores and, with the root, the sum."""
        allowed = [self._form({party}, set()).plain for party in sorted(coalition)]
        if self.root in coalition:
            allowed.append((1,) * len(self.parties))
        return allowed

    def exposed_to(self, coalition: Collection[str]) -> bool:
        """Return whether parties can compute together more than they may: the span test has failed."""
        return not spanned_by(self.learns(coalition), self.may_learn(coalition))

    def _form(self, plain: Collection[str], masks: Collection[str]) -> LinearForm:
        order = self.parties
        return LinearForm(
            tuple(int(party in plain) for party in order), tuple(int(party in masks) for party in order)
        )


def shared_subtrees(pair: TreePair) -> list[frozenset[str]]:
    """Return the subtrees of more than one party, but not all, that are in both trees."""
    families = [
        {tree.subtree(party) for party in tree.parents if tree.children(party)}
        for tree in (pair.scores, pair.masks)
    ]
    return sorted(families[0] & families[1], key=sorted)


def require_hidden(pair: TreePair) -> None:
    """Refuse trees over which some party learns more than its own scores and, at the root, the sum.

    Raises:
        Refused: The trees share a subtree, or fail the span test; names the party.
    """
    if pair.hides_scores and (shared := shared_subtrees(pair)):
        raise Refused(
            f"the two aggregation trees towards {pair.root!r} are not totally different: "
            f"{', '.join(sorted(shared[0]))} form a subtree of both",
            advice="Use the trees that the parties' names determine.",
        )
    for party in pair.parties:
        if pair.exposed_to({party}):
            raise Refused(
                f"the aggregation trees towards {pair.root!r} let {party!r} compute other parties' scores",
                advice="Use the trees that the parties' names determine.",
            )


def star(parties: Collection[str], root: str) -> Tree:
    """Return the tree in which everybody answers the root at once."""
    return Tree(root, {party: root for party in sorted(parties) if party != root})


def plan_trees(parties: Collection[str], root: str, shape: TreeShape) -> TreePair:
    """Return the two trees towards a root: the same at every party, because only names decide.

    Raises:
        Refused: There are fewer than two parties, or the root is none of them.
    """
    if root not in parties or len(set(parties)) < 2:
        raise Refused(f"an aggregation needs two parties at least, and {root!r} among them")
    order = (root, *sorted(set(parties) - {root}))
    places = range(1, len(order))
    binomial = Tree(root, {order[i]: order[i & (i - 1)] for i in places})
    shifted = {order[i]: order[((i - 1) & (i - 2)) + 1] for i in places if i > 1}
    scores = star(order, root) if shape == "flat" else binomial
    return TreePair(scores, Tree(root, {order[1]: root, **shifted}))


def colluding_readers(pair: TreePair, size: int) -> Iterator[tuple[str, ...]]:
    """Yield the coalitions of `size` parties that can compute more than they may: for the list of leaks."""
    return (group for group in combinations(pair.parties, size) if pair.exposed_to(group))


def describe_hiding(pair: TreePair) -> str:
    """Return in one sentence what the aggregation hides from whom."""
    if not pair.hides_scores:
        other = pair.parties[1]
        return (
            f"with two parties no aggregation can hide anything: {pair.root} learns the scores of {other} "
            f"as the sum without its own"
        )
    pairs = list(colluding_readers(pair, 2)) if len(pair.parties) > 3 else []
    together = f"; {pairs[0][0]} and {pairs[0][1]} could compute more together" if pairs else ""
    return f"{pair.root} learns the sum of all scores, the others learn nothing{together}"
