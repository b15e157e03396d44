// Threads that compute one call together: they take shares of a phase's work, and wait for one another at its end.

#pragma once

#include <atomic>
#include <cstdint>

// Shared by the threads of one call.
struct Team {
    int threads = 1;
    // Each on a cache line of its own: who waits for one must not slow down who changes another.
    alignas(64) std::atomic<int> next{0};  // the first share of the phase's work that is not taken yet
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint32_t> phase{0};
    std::atomic<int64_t> waited_ns{0};  // after spinning
};

// Takes `size` of `all` shares; the first of them, or -1 if there are none left.
inline int take(std::atomic<int> &next, int size, int all) {
    const int first = next.fetch_add(size, std::memory_order_relaxed);
    return first < all ? first : -1;
}

// Waits until all threads of the team are here.
void meet(Team &team);
