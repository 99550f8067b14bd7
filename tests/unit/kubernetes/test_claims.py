# SPDX-License-Identifier: Apache-2.0
"""What a claim may say, and what it gets."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.kubernetes import claims, quantity
from detshare.ctl.kubernetes.claims import Claim, Settings
from detshare.ctl.kubernetes.parameters import Parameters, annotated, decode

HEAD = {"apiVersion": "gpu.detshare.io/v1", "kind": "GpuParameters"}
DEVICE = "gpu-00000000-1111-2222-3333-444444444444"


def config(source: str, *requests: str, **parameters: object) -> dict[str, Any]:
    opaque = {"driver": "gpu.detshare.io", "parameters": {**HEAD, **parameters}}
    return {"source": source, "requests": list(requests), "opaque": opaque}


def result(request: str = "gpu", device: str = DEVICE, **consumed: str) -> dict[str, Any]:
    made: dict[str, Any] = {"driver": "gpu.detshare.io", "pool": "worker-1", "request": request, "device": device}
    return {**made, "consumedCapacity": consumed} if consumed else made


def claim(*configs: dict[str, Any], results: tuple[dict[str, Any], ...] = (), **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "u-1",
            "namespace": "default",
            "name": "a",
            "annotations": {f"gpu.detshare.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "status": {
            "allocation": {
                "devices": {"results": list(results or (result(memory="8Gi", share="30"),)), "config": list(configs)}
            },
            "reservedFor": [
                {"resource": "pods", "name": "p", "uid": "p-1"},
                {"apiGroup": "example.com", "resource": "pods", "name": "q", "uid": "q-1"},
            ],
        },
    }


def settings(*configs: dict[str, Any], **named: Any) -> Settings:
    return claims.read(claim(*configs, **named)).settings


def test_what_the_scheduler_counted_is_what_a_claim_gets() -> None:
    assert settings() == Settings("normal", 30, None, {DEVICE: 8 << 30})


def test_a_device_that_is_not_shared_has_no_limit() -> None:
    assert settings(results=(result(),)) == Settings("normal", None, None, {})


def test_only_pods_of_the_core_group_are_pods() -> None:
    assert claims.read(claim()).pods == ("p-1",)


def test_a_device_class_is_the_ceiling_of_its_claims() -> None:
    low = config("FromClass", **{"class": "low", "floorPercent": 10, "memory": "6Gi"})
    assert settings(low) == Settings("low", 30, 100, {DEVICE: 6 << 30})
    less = config("FromClaim", floorPercent=2.5, weight=7, memory="1Gi")
    assert settings(low, less) == Settings("low", 7, 25, {DEVICE: 1 << 30})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"class": "normal"}, "class normal is above low"),
        ({"weight": 31}, "weight 31 is more than the 30"),
        ({"floorPercent": 11}, "floor 110 per mille is more than the 100"),
        ({"memory": "7Gi"}, "is more than the 6442450944 bytes"),
    ],
)
@pytest.mark.parametrize("by", ["claim", "annotation"])
def test_nobody_gets_more_by_asking_for_it(by: str, more: dict[str, Any], why: str) -> None:
    low = config("FromClass", **{"class": "low", "floorPercent": 10, "memory": "6Gi"})
    names = {"floorPercent": "floor_percent"}
    said = {names.get(key, key): str(value) for key, value in more.items()}
    made = claim(low, config("FromClaim", **more)) if by == "claim" else claim(low, **said)
    with pytest.raises(ValueError, match=why):
        claims.read(made)


def test_a_class_without_parameters_gives_no_class_above_normal() -> None:
    with pytest.raises(ValueError, match="class high is above normal"):
        settings(config("FromClaim", **{"class": "high"}))


def test_a_floor_that_no_class_named_is_at_most_the_share() -> None:
    low = config("FromClass", **{"class": "low"})
    assert settings(low, config("FromClaim", floorPercent=30)).floor == 300
    with pytest.raises(ValueError, match="floor 310"):
        settings(low, config("FromClaim", floorPercent=31))


@pytest.mark.parametrize("klass", ["normal", "high", "idle"])
def test_a_floor_goes_with_class_low(klass: str) -> None:
    high = config("FromClass", **{"class": "high"})
    with pytest.raises(ValueError, match="a floor goes with class low"):
        settings(high, config("FromClaim", **{"class": klass, "floorPercent": 1}))


def test_high_goes_first_and_has_no_weight() -> None:
    high = config("FromClass", **{"class": "high"})
    assert settings(high) == Settings("high", None, None, {DEVICE: 8 << 30})
    with pytest.raises(ValueError, match="class high has no weight"):
        settings(high, config("FromClaim", weight=3))


def test_configurations_are_of_their_requests_and_the_later_goes_first() -> None:
    first = config("FromClass", "other", **{"class": "high"})
    second = config("FromClass", "gpu", **{"class": "low"})
    third = config("FromClass", **{"class": "idle"})
    assert settings(first).klass == "normal"
    assert settings(first, second).klass == "low"
    assert settings(first, second, third).klass == "idle"
    assert settings(second, results=(result("gpu/large"),)).klass == "low"


def test_what_is_for_another_driver_is_not_read() -> None:
    made = claim(results=(result(), {**result(), "driver": "gpu.nvidia.com"}))
    made["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClass", "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}
    ]
    assert [each.device for each in claims.read(made).allotments] == [DEVICE]


def test_devices_of_a_claim_have_their_own_memory_and_one_place() -> None:
    found = settings(results=(result(memory="8Gi", share="30"), result(device="b", memory="4Gi", share="20")))
    assert found == Settings("normal", 20, None, {DEVICE: 8 << 30, "b": 4 << 30})
    two = config("FromClass", "one", **{"class": "low"})
    with pytest.raises(ValueError, match="a pod is one tenant"):
        settings(two, results=(result("one"), result("two", device="b")))


def test_claims_of_a_pod_add_up_on_a_gpu() -> None:
    one, two = Settings(weight=30, memory={"a": 4, "b": 1}), Settings(weight=20, memory={"a": 5})
    assert claims.together([one, two]) == Settings(weight=20, memory={"a": 9, "b": 1})


def test_a_claim_of_several_pods_is_divided() -> None:
    whole = Settings("low", 30, 90, {"a": 9})
    assert whole.divided(3) == Settings("low", 10, 30, {"a": 3})
    assert Settings(weight=1, memory={"a": 1}).divided(2) == Settings(weight=1, memory={"a": 1})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {}}, "no device of ours is allocated"),
        ({"status": {"allocation": {"devices": {"results": [{**result(), "adminAccess": True}]}}}}, "adminAccess"),
    ],
)
def test_what_cannot_be_served_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        claims.read({**claim(), **change})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("low", "parameters are an object"),
        ({}, "not gpu.detshare.io/v1 GpuParameters"),
        ({**HEAD, "apiVersion": "gpu.detshare.io/v2"}, "not gpu.detshare.io/v1"),
        ({**HEAD, "Class": "low"}, "there is no parameter 'Class'"),
        ({**HEAD, "class": "urgent"}, "class: 'urgent' is no class"),
        ({**HEAD, "class": None}, "class: None is no class"),
        ({**HEAD, "weight": "3"}, "weight: weight 3 is out of range"),
        ({**HEAD, "weight": True}, "weight: weight True"),
        ({**HEAD, "weight": 0}, "weight: weight 0"),
        ({**HEAD, "floorPercent": 51}, "is no floor"),
        ({**HEAD, "floorPercent": float("nan")}, "is no floor"),
        ({**HEAD, "memory": "8G i"}, "is no quantity"),
        ({**HEAD, "memory": "0"}, "is no limit of memory"),
        ({**HEAD, "memory": "16Ei"}, "is no limit of memory"),
        ({**HEAD, "lane": "spatial"}, "is no lane that a pod can have"),
    ],
)
def test_parameters_are_decoded_strictly(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(value, "claim")


def test_annotations_are_decoded_strictly_and_those_of_others_left() -> None:
    ours = {"gpu.detshare.io/memory": "4Gi", "gpu.detshare.io/weight": "3", "gpu.detshare.io/floor-percent": "2.5"}
    assert annotated({**ours, "example.com/memory": "x"}) == Parameters(weight=3, floor=25, memory=4 << 30)
    for key, value in (("limit", "1"), ("memory", ""), ("weight", "3.0"), ("weight", "1_0"), ("lane", "temporal")):
        with pytest.raises(ValueError, match=r"annotation"):
            annotated({f"gpu.detshare.io/{key}": value})


@given(st.integers(0, 1 << 70))
def test_a_size_as_a_quantity_is_the_same_size(size: int) -> None:
    if len(quantity.text(size)) <= 20:
        assert quantity.parse(quantity.text(size)) == size


@pytest.mark.parametrize(
    ("text", "value"),
    [("8Gi", 8 << 30), ("1.5k", 1500), ("1e3", 1000), ("100m", 1), (".5Ki", 512), (7, 7), ("2E", 2 * 10**18)],
)
def test_quantities(text: object, value: int) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "8 Gi", "-1", "Gi", "8gi", "1e", "1e100", True, None, 1.5, "٣"])
def test_no_quantities(text: object) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity.parse(text)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(ANYTHING)
def test_no_parameters_make_the_decoder_fail_otherwise(value: object) -> None:
    for each in (value, {**HEAD, "memory": value}, {**HEAD, "weight": value}, {**HEAD, "class": value}):
        try:
            decode(each, "claim")
        except ValueError:
            continue


def test_a_claim_comes_back_from_json_as_it_was() -> None:
    found = claims.read(claim(config("FromClass", **{"class": "low"})))
    assert Claim.from_json(copy.deepcopy(found.to_json())) == found
