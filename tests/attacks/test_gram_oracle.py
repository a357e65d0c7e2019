"""C is no decryption oracle in Gram rounds either: declared lengths, once a pair and once a round."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from common.rpc.pb import he_gram_pb2 as gram
from tests.attacks.oracle import Oracle, oracle_of
from tests.attacks.world import CALL_S, World, job_of, turn_of

JOB = job_of(train={"max_rounds": 3, "loss_every": 2}, crypto={"rounds": "gram"})
CG = job_of(train={"max_rounds": 3, "solver": "cg"}, crypto={"rounds": "gram"})


@pytest.fixture
async def oracle(world: World, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Oracle]:
    """Return a coordinator with a job that both parties have opened: A has 3 columns, B has 2."""
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        yield oracle


async def declare(oracle: Oracle, party: str, result: int, products: Mapping[str, int]) -> None:
    request = gram.GramDeclaration(turn=turn_of(oracle.job), result_length=result, products_lengths=products)
    await oracle.stubs[party].DeclareGram(request, timeout=CALL_S)


async def products(oracle: Oracle, party: str, masker: str, *values: int) -> int:
    message = gram.BlindedProducts(
        turn=turn_of(oracle.job), masker=masker, ciphertexts=oracle.sealed(*values).to_bytes()
    )
    received = b""
    async for answer in oracle.stubs[party].DecryptProducts(iter([message]), timeout=CALL_S):
        received += answer.residues
    assert oracle.cipher is not None
    return len(received) // oracle.cipher.key.residue_bytes


async def test_each_party_gets_what_it_declared(oracle: Oracle) -> None:
    await declare(oracle, "party_a", 1, {})
    await declare(oracle, "party_b", 2, {"party_a": 3})
    assert await products(oracle, "party_b", "party_a", 1, 2, 3) == 3
    assert await oracle.gradient("party_a", 1, oracle.sealed(7)) == [7]
    assert await oracle.gradient("party_b", 1, oracle.sealed(7, 8)) == [7, 8]


async def test_nothing_is_decrypted_before_the_lengths_are_declared(oracle: Oracle) -> None:
    assert "length 0" in await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(1)), "party_a")
    await oracle.refuses(products(oracle, "party_b", "party_a", 1, 2, 3), "party_b")


async def test_products_are_decrypted_once_and_only_in_the_declared_length(oracle: Oracle) -> None:
    await declare(oracle, "party_b", 1, {"party_a": 3})
    for values in ((1,), (1, 2), (1, 2, 3, 4)):
        await oracle.refuses(products(oracle, "party_b", "party_a", *values), "party_b")
    assert await products(oracle, "party_b", "party_a", 1, 2, 3) == 3
    assert "decrypted once" in await oracle.refuses(
        products(oracle, "party_b", "party_a", 4, 5, 6), "party_b"
    )


async def test_the_party_that_masks_gets_no_products_decrypted(oracle: Oracle) -> None:
    await declare(oracle, "party_a", 1, {})
    await declare(oracle, "party_b", 1, {"party_a": 3})
    await oracle.refuses(products(oracle, "party_a", "party_b", 1, 2, 3), "party_a")
    await oracle.refuses(products(oracle, "party_b", "stranger", 1, 2, 3), "party_b")


@pytest.mark.parametrize(
    ("result", "products_lengths"),
    [(0, {}), (4, {}), (1, {"party_b": 13}), (1, {"party_b": 0}), (1, {"party_a": 1}), (1, {"stranger": 1})],
)
async def test_no_more_can_be_declared_than_columns_allow(
    oracle: Oracle, result: int, products_lengths: dict[str, int]
) -> None:
    await oracle.refuses(declare(oracle, "party_a", result, products_lengths), "party_a", Exception)


async def test_a_declaration_cannot_be_changed_later(oracle: Oracle) -> None:
    await declare(oracle, "party_a", 1, {})
    await declare(oracle, "party_a", 1, {})
    await oracle.refuses(declare(oracle, "party_a", 2, {}), "party_a", Exception)


async def test_a_stranger_may_neither_declare_nor_ask(oracle: Oracle) -> None:
    await oracle.refuses(declare(oracle, "stranger", 1, {}), "stranger")
    await oracle.refuses(products(oracle, "stranger", "party_a", 1), "stranger")


async def test_with_conjugate_gradients_no_loss_is_ever_decrypted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with oracle_of(world, CG, caplog) as oracle:
        await oracle.open_everywhere()
        for number in (1, 2, 3):
            await oracle.refuses(oracle.loss("party_b", number, oracle.sealed(1)), "party_b")


async def test_a_row_wise_job_has_no_products_to_decrypt(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with oracle_of(world, job_of(train={"max_rounds": 3}), caplog) as oracle:
        await oracle.open_everywhere()
        await oracle.refuses(declare(oracle, "party_a", 1, {}), "party_a", Exception)
        await oracle.refuses(products(oracle, "party_b", "party_a", 1), "party_b", Exception)
