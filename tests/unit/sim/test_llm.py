# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.sim.arrivals import Trace, poisson
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS, LlmServer
from detshare.ctl.sim.profile import packaged
from detshare.ctl.sim.scenario import Scenario
from detshare.ctl.sim.tenants import Saturate, Tenant

MODEL = replace(MODELS["measured-1.4b"], kv_tokens=400, chunk=64, most_sequences=5)
REQUESTS = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 200), st.integers(1, 100)), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(REQUESTS, st.booleans(), st.sampled_from(("temporal", "spatial", "mps")))
def test_no_token_is_lost_and_the_cache_is_never_overfull(
    requests: list[tuple[float, int, int]], prefill_first: bool, lane: str
) -> None:
    times, prompts, answers = (np.array(each) for each in zip(*sorted(requests), strict=True))
    server = LlmServer(MODEL, Trace("t", times, prompts, answers), prefill_first=prefill_first)
    other = Tenant("training", Saturate(150.0), klass="low")
    Engine(Gpu(), lane, [Tenant("llm", server, klass="high"), other]).run(300e6)
    assert server.unfinished == 0
    assert server.served.finished == len(requests)
    assert server.served.tokens == answers.sum()
    assert server.served.prompt_tokens == prompts.sum()
    assert server.kv == 0 < server.kv_peak <= MODEL.kv_tokens
    assert (server.served.ttft > 0).all()
    assert (np.isnan(server.served.tpot) == (answers == 1)).all()


def test_one_request_alone_takes_its_prefill_and_its_steps() -> None:
    model = MODELS["measured-1.4b"]
    server = LlmServer(model, Trace("t", np.array([0.0]), np.array([1000]), np.array([3])))
    Engine(Gpu(), "temporal", [Tenant("llm", server)]).run(1e6)
    assert server.served.ttft[0] == pytest.approx(model.prefill_us(1000), abs=0.1)
    steps = model.decode_us(1, 1001) + model.decode_us(1, 1002)
    assert server.served.tpot[0] == pytest.approx(steps / 2, abs=0.1)


def test_a_batch_of_the_measured_size_takes_the_measured_time() -> None:
    assert MODELS["measured-1.4b"].decode_us(8, 8 * 1024) == pytest.approx(2734.2, rel=0.02)


def test_a_request_beyond_the_cache_is_refused_at_the_start() -> None:
    with pytest.raises(SimError, match="600 tokens can never be served"):
        LlmServer(MODEL, Trace("t", np.array([0.0]), np.array([500]), np.array([100])))


def test_classes_bring_tokens_close_to_alone_and_equal_slices_do_not() -> None:
    scenario = Scenario(MODELS["measured-1.4b"], lambda seed: poisson(2.0, 8.0, seed), 8.0, packaged())
    alone, sliced, managed = (scenario.run(scheme, 1) for scheme in ("alone", "time-slicing", "temporal"))
    assert managed["TPOT ms p50"] < 1.1 * alone["TPOT ms p50"]
    assert sliced["TPOT ms p50"] > 1.8 * alone["TPOT ms p50"]
    assert 0 < managed["training, of alone"] < 1
    assert scenario.run("temporal", 1) == managed
    with pytest.raises(SimError, match="scheme 'x' is none"):
        scenario.run("x", 1)
