"""Which functions of a repeated sequence find their code evicted."""

from __future__ import annotations

from placer.tracing.python_calls import AROUND, FAR, NEAR, LruStack


def evicted(functions: int, rounds: int) -> float:
    stack = LruStack()
    for _ in range(rounds):
        for function in range(functions):
            stack.enter(function)
    return stack.evicted


def test_few_functions_stay_cached() -> None:
    assert evicted(NEAR - AROUND, 5) == 0.0


def test_many_functions_are_evicted_whenever_they_return() -> None:
    assert evicted(FAR + 1, 5) == 5 * (FAR + 1)


def test_at_a_distance_in_between_part_of_a_function_is_evicted() -> None:
    functions = (NEAR + FAR) // 2 + 1  # the reuse distance, plus one
    assert evicted(functions, 3) == functions * (1 + 2 * 0.5)


def test_only_different_functions_count_as_distance() -> None:
    stack = LruStack()
    for function in range(2 * FAR):
        stack.enter(-1)
        stack.enter(function)
    assert stack.evicted == 2 * FAR + 1  # each of the others once, and -1 as the step begins
