"""A lock that goes to whoever has waited longest."""

from __future__ import annotations

import pickle
import threading

from flowrl.rollout.turns import Turns


def test_a_thread_that_takes_it_again_and_again_keeps_nobody_from_it():
    """With a plain lock the loop below would keep it for most of the time."""
    turns, taken, stop = Turns(), [], threading.Event()

    def loop():
        while not stop.is_set():
            with turns:
                taken.append("learner")

    thread = threading.Thread(target=loop)
    thread.start()
    while not taken:
        pass
    waits = []
    for _ in range(200):
        before = len(taken)
        with turns:
            waits.append(len(taken) - before)
    stop.set()
    thread.join(10)
    assert sorted(waits)[100] <= 100  # steps between asking and having: a handful, not as many as fit into 5 ms


def test_those_who_wait_get_it_in_the_order_they_came():
    turns, order, waiting = Turns(), [], []

    def take(name):
        with turns:
            order.append(name)

    with turns:
        for name in range(5):
            thread = threading.Thread(target=take, args=(name,))
            thread.start()
            waiting.append(thread)
            while len(turns._waiting) <= name:
                pass
    for thread in waiting:
        thread.join(10)
    assert order == list(range(5))


def test_the_thread_that_has_it_may_take_it_again():
    turns = Turns()
    with turns, turns:
        assert not turns.are_anothers
    entered = threading.Event()

    def take():
        with turns:
            entered.set()

    threading.Thread(target=take).start()
    assert entered.wait(10)


def test_it_says_whether_another_thread_has_it():
    turns, seen = Turns(), []
    with turns:
        thread = threading.Thread(target=lambda: seen.append(turns.are_anothers))
        thread.start()
        thread.join(10)
    assert seen == [True] and not turns.are_anothers


def test_an_error_inside_gives_it_back():
    turns = Turns()
    try:
        with turns:
            raise ArithmeticError
    except ArithmeticError:
        pass
    assert not turns.are_anothers and turns._owner is None


def test_who_is_interrupted_while_waiting_is_waited_for_no_more(python):
    """Ctrl-C in the main thread, while a learner has it; and the next one gets it."""
    out = python(
        """
        import os, signal, threading
        from flowrl.rollout.turns import Turns
        turns, release = Turns(), threading.Event()
        held = threading.Event()
        def hold():
            with turns:
                held.set()
                release.wait(30)
        threading.Thread(target=hold).start()
        held.wait(10)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            with turns:
                print("taken")
        except KeyboardInterrupt:
            print("interrupted")
        release.set()
        with turns:
            print("taken after")
        """
    )
    assert out.split("\n")[:2] == ["interrupted", "taken after"]


def test_a_copy_is_free():
    turns = Turns()
    with turns:
        assert pickle.loads(pickle.dumps(turns))._owner is None
