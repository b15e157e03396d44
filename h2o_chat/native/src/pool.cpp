#include "pool.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
static void relax() { _mm_pause(); }
#elif defined(__aarch64__)
static void relax() { __asm__ __volatile__("isb"); }  // `yield` does nothing on most processors
#else
static void relax() { std::atomic_signal_fence(std::memory_order_seq_cst); }
#endif

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 4000;  // tens of microseconds: a phase is rarely more uneven
constexpr int64_t kAwakeNs = 500'000;  // between two tokens: to be woken takes a tenth of that
constexpr double kLongShare = 0.5;  // of a call's time spent waiting, from which on threads are in the way
constexpr int kLeastCalls = 16, kMostCalls = 512;  // with one thread, before several are tried again

int64_t ns_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

void meet(Team &team) {
    if (team.threads == 1) {
        team.next.store(0, std::memory_order_relaxed);
        return;
    }
    const uint32_t phase = team.phase.load(std::memory_order_acquire);
    if (team.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == team.threads) {
        team.next.store(0, std::memory_order_relaxed);
        team.arrived.store(0, std::memory_order_relaxed);
        team.phase.store(phase + 1, std::memory_order_release);
        return;
    }
    for (int spin = 0; spin < kSpins; ++spin) {
        if (team.phase.load(std::memory_order_acquire) != phase) return;
        relax();
    }
    const Clock::time_point start = Clock::now();
    while (team.phase.load(std::memory_order_acquire) == phase) std::this_thread::yield();
    team.waited_ns.fetch_add(ns_since(start), std::memory_order_relaxed);
}

struct Pool {
    std::vector<std::thread> threads;
    std::mutex lock;
    std::condition_variable begin;
    std::atomic<uint32_t> call{0};   // counts calls; a change of it is what threads wait for
    std::atomic<int> wanted{0};      // of the pool's threads, for the call under way
    std::atomic<int> busy{0};        // which have not finished it
    std::atomic<bool> ends{false};
    Work work = nullptr;
    void *job = nullptr;
    int alone = 0;                   // calls to come that one thread makes
    int alone_next = kLeastCalls;    // as many the next time
    std::atomic<int64_t> waited_ns{0};
    h2o_lender lender = {};          // whose threads compute instead, if it has any
    int lent = 0;
};

static void serve(Pool *pool, int thread) {
    uint32_t seen = 0;
    for (;;) {
        for (int spin = 0; spin < kSpins && pool->call.load(std::memory_order_acquire) == seen; ++spin) relax();
        const Clock::time_point idle = Clock::now();
        while (pool->call.load(std::memory_order_acquire) == seen && ns_since(idle) < kAwakeNs)
            std::this_thread::yield();
        if (pool->call.load(std::memory_order_acquire) == seen) {
            std::unique_lock<std::mutex> held(pool->lock);
            pool->begin.wait(held, [&] { return pool->call.load(std::memory_order_acquire) != seen; });
        }
        seen = pool->call.load(std::memory_order_acquire);
        if (pool->ends.load(std::memory_order_acquire)) return;
        if (thread <= pool->wanted.load(std::memory_order_acquire)) {
            pool->work(pool->job, thread);
            pool->busy.fetch_sub(1, std::memory_order_release);
        }
    }
}

// Says to all threads that there is something new.
static void call(Pool *pool) {
    {
        std::lock_guard<std::mutex> held(pool->lock);
        pool->call.fetch_add(1, std::memory_order_release);
    }
    pool->begin.notify_all();
}

Pool *pool_open(int threads) {
    std::unique_ptr<Pool> pool(new (std::nothrow) Pool);
    if (!pool) return nullptr;
    for (int thread = 1; thread < threads; ++thread) {
#if defined(__cpp_exceptions)
        try {
            pool->threads.emplace_back(serve, pool.get(), thread);
        } catch (...) {  // the system gives no more: fewer will do
            break;
        }
#else
        pool->threads.emplace_back(serve, pool.get(), thread);
#endif
    }
    return pool.release();
}

void pool_close(Pool *pool) {
    pool->ends.store(true, std::memory_order_release);
    call(pool);
    for (std::thread &thread : pool->threads) thread.join();
    delete pool;
}

namespace {

// A call computed by somebody else's threads.
struct Lent {
    const h2o_lender &lender;
    int threads;  // asked for
    Team &team;
    Work work;
    void *job;
};

}  // namespace

static void compute_lent(void *call) {
    const Lent &lent = *static_cast<Lent *>(call);
    const int thread = lent.lender.number();
    if (lent.lender.count() == lent.threads) return lent.work(lent.job, thread);
    if (thread) return;  // fewer came than were asked for: one does it all
    lent.team.threads = 1;
    lent.work(lent.job, 0);
}

void pool_borrow(Pool *pool, const h2o_lender &lender, int threads) {
    pool->lender = lender;
    pool->lent = threads;
}

void pool_run(Pool *pool, Team &team, Work work, void *job) {
    if (pool->lent) {
        team.threads = pool->lent;
        Lent lent = {pool->lender, pool->lent, team, work, job};
        pool->lender.run(compute_lent, &lent, static_cast<unsigned>(pool->lent), 0);
        return;
    }
    const bool alone = pool->alone > 0;
    const int others = alone ? 0 : static_cast<int>(pool->threads.size());
    team.threads = others + 1;
    if (!others) {
        pool->alone -= alone;
        work(job, 0);
        return;
    }
    const Clock::time_point start = Clock::now();
    pool->work = work;
    pool->job = job;
    pool->busy.store(others, std::memory_order_relaxed);
    pool->wanted.store(others, std::memory_order_release);
    call(pool);
    work(job, 0);
    for (int spin = 0; pool->busy.load(std::memory_order_acquire); ++spin)
        spin < kSpins ? relax() : std::this_thread::yield();
    const int64_t waited = team.waited_ns.load(std::memory_order_relaxed);
    pool->waited_ns.fetch_add(waited, std::memory_order_relaxed);
    if (static_cast<double>(waited) > kLongShare * static_cast<double>(ns_since(start))) {
        pool->alone = pool->alone_next;
        pool->alone_next = pool->alone_next * 2 < kMostCalls ? pool->alone_next * 2 : kMostCalls;
    } else {
        pool->alone_next = kLeastCalls;
    }
}

int pool_threads(const Pool *pool) { return pool->lent ? pool->lent : static_cast<int>(pool->threads.size()) + 1; }

double pool_waited_ms(const Pool *pool) { return static_cast<double>(pool->waited_ns.load()) / 1e6; }
