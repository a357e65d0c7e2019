"""VFB² where everybody reaches the conducting party, and two parties do not reach each other."""

from __future__ import annotations

import pytest

from common.rpc.addresses import free_ports
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED
from tests.e2e.parties import ended
from tests.e2e.vfb2_parties import four, job, write_tables

pytestmark = pytest.mark.e2e


async def test_parties_that_never_reach_each_other_end_the_job_and_are_named_and_the_next_job_runs(
    start, tmp_path_factory
):
    tables = write_tables(tmp_path_factory.mktemp("unreachable"))
    federation = start(*four(tables, deadlines={"peer_s": 8}), circle=True)
    right = federation["party_b2"].settings["peers"]["party_a"]
    federation["party_b2"].restart(peers={"party_a": f"127.0.0.1:{free_ports(1)[0]}"})
    async with federation.operator() as operator:
        record = await ended(operator, (await operator.submit(job(train={"epochs": 2}))).job_id)
    assert record.status == JOB_FAILED
    assert record.error.error == "PeerUnreachable"
    assert "the stream of party_b2 to party_a broke" in record.error.what
    federation["party_b2"].restart(peers={"party_a": right})
    async with federation.operator() as operator:
        record = await ended(operator, (await operator.submit(job(train={"epochs": 2}))).job_id)
    assert record.status == JOB_FINISHED, record.error
