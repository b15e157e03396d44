// A small pool of threads, kept for the life of a model.

#pragma once

#include "h2o.h"
#include "team.h"

struct Pool;

// Computes one call's share; `thread` is 0 for the caller.
typedef void (*Work)(void *job, int thread);

Pool *pool_open(int threads);
void pool_close(Pool *pool);

// From now on calls are computed by so many threads of another pool.
void pool_borrow(Pool *pool, const h2o_lender &lender, int threads);

// Has `work` done by the caller and the pool's threads together: by fewer while waits are long, because then other
// programs use the processors. The result depends on that as little as on who takes which share.
void pool_run(Pool *pool, Team &team, Work work, void *job);

int pool_threads(const Pool *pool);
double pool_waited_ms(const Pool *pool);
