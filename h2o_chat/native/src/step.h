// A token's way: embedding; per layer norm, products, RoPE, slots, attention, MLP; head.
//
// All threads run these functions together: each takes shares of a phase's work, and they meet between phases.

#pragma once

#include <cstring>

#include "attention.h"

namespace {

// Whether activations have two bytes beside weights of m.
inline bool two_bytes(const h2o_matrix &m) { return m.kind == H2O_Q8_0; }

// The rounded activations of all tokens, shared by all threads, for a product with m.
inline Rounded shared(const Job &job, const h2o_matrix &m) {
    const int width = job.tokens < kWidth ? job.tokens : kWidth;
    return {job.numbers, job.scales, job.sums, m.columns, width, two_bytes(m) ? 64 : 32};
}

// Calls `one` with each token that is this thread's. Where there are enough a thread takes a block at once: the scales of a
// block lie side by side, and two threads that write to one cache line wait for each other.
template <class One>
inline void by_tokens(const Job &job, One one) {
    const int run = job.tokens >= kWidth * job.team->threads ? kWidth : 1;
    for (int first; (first = take(job.team->next, run, job.tokens)) >= 0;)
        for (int token = first; token < first + run && token < job.tokens; ++token) one(token);
}

// Tokens' numbers [N, stride], normed first if there is a weight, rounded for a product with m. A single token is
// rounded by every thread for itself, which is cheaper than waiting for one that does it.
inline Rounded rounded(Job &job, int thread, const float *x, int stride, const float *weight, const h2o_matrix &m) {
    const int columns = m.columns;
    Own own(job, thread);
    own.rounded.columns = columns;
    own.rounded.bytes = two_bytes(m) ? 64 : 32;
    const bool alone = job.tokens == 1;
    const Rounded all = alone ? own.rounded : shared(job, m);
    const auto one = [&](int token) {
        const float *from = x + static_cast<ptrdiff_t>(token) * stride;
        if (weight) {
            for (int i = job.frame->hidden; i < columns; ++i) own.floats[i] = 0;
            norm(from, weight, job.frame->hidden, job.frame->epsilon, own.floats);
            from = own.floats;
        }
        round_to_bytes(from, two_bytes(m), all.of(token));
    };
    if (alone) {
        one(0);
        return all;
    }
    by_tokens(job, one);
    meet(*job.team);
    return all;
}

// One row of a matrix, dequantised.
template <int kind>
inline void dequantise(const h2o_matrix &m, int row, int size, float *x) {
    const ptrdiff_t groups = m.columns / 32, tile = row / 16;
    const uint8_t *weights = m.weights + tile * groups * levels_bytes(kind);
    const uint8_t *all_scales = m.scales + tile * groups * scales_bytes(kind);
    const int r = 4 * (row % 16), zero = has_minimum(kind) ? 0 : zero_level(kind);
    for (int group = 0; group < groups; ++group, weights += levels_bytes(kind)) {
        const Scales scales = scales_of<kind>(all_scales, group);
        float scale[16], other[16];
        store(scale, scales.scale);
        store(other, scales.other);
        for (int at = 0; at < 32 && 32 * group + at < size; ++at) {
            const int j = at / 4, i = r + at % 4, half = at / 16;
            int level = weights[64 * (level_bits(kind) == 8 ? j : j % 4) + i];
            if (level_bits(kind) < 8) level = half ? level >> 4 : level & 15;
            if (level_bits(kind) == 5) level |= (weights[256 + i] >> j & 1) << 4;
            if (level_bits(kind) == 6) level |= (weights[256 + 64 * half + i] >> 2 * (j % 4) & 3) << 4;
            const auto q = static_cast<float>(level - zero);
            x[32 * group + at] = has_minimum(kind) ? fma(q, scale[row % 16], -other[row % 16])
                                                   : q * (has_halves(kind) && half ? other : scale)[row % 16];
        }
    }
}

// Rows of the embedding; 0 behind them (`copy_rows`).
inline void embed_tokens(Job &job) {
    const h2o_matrix &m = job.frame->embedding;
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;) {
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride;
        for (int i = job.frame->hidden; i < job.x_stride; ++i) x[i] = 0;
        by_kind(m.kind, [&](auto kind) {
            dequantise<decltype(kind)::value>(m, static_cast<int>(job.ids[token]), job.frame->hidden, x);
        });
    }
    meet(*job.team);
}

// Matrices that take activations of as many bytes are multiplied together.
inline void queries_keys_values(Job &job, int thread, const h2o_layer &layer) {
    const int rows = Sizes(*job.frame).rows;
    for (int first = 0, end, before = 0; first < 3 && layer.qkv[first].rows; first = end) {
        const h2o_matrix *some = layer.qkv + first;
        for (end = first + 1; end < 3 && two_bytes(layer.qkv[end]) == two_bytes(*some);) ++end;
        const Rounded in = rounded(job, thread, job.x, job.x_stride, layer.norm_attention, *some);
        product(job, some, end - first, in, [&](Floats sums, int token, int tile) {
            const ptrdiff_t at = before + 16 * tile;
            if (layer.bias_qkv) sums = add(sums, load(layer.bias_qkv + at));
            store(job.qkv + static_cast<ptrdiff_t>(token) * rows + at, sums);
        });
        for (int i = first; i < end; ++i) before += layer.qkv[i].rows;
        meet(*job.team);
    }
}

// Attended [N, columns of out] -> x.
inline void output(Job &job, int thread, const h2o_layer &layer) {
    const Rounded in = rounded(job, thread, job.attended, layer.out.columns, nullptr, layer.out);
    product(job, &layer.out, 1, in, [&](Floats sums, int token, int tile) {
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
        store(x, add(load(x), sums));
    });
    meet(*job.team);
}

inline void gated_mlp(Job &job, int thread, const h2o_layer &layer) {
    const int wide = layer.down.columns;
    const Rounded in = rounded(job, thread, job.x, job.x_stride, layer.norm_mlp, layer.gate_up);
    const auto gated_at = [&](int token, int tile) {
        return job.gated + static_cast<ptrdiff_t>(token) * wide + 16 * tile;
    };
    if (layer.up.rows) {
        product(job, &layer.gate_up, 1, in,
                [&](Floats sums, int token, int tile) { store(gated_at(token, tile), silu(sums)); });
        meet(*job.team);
        const Rounded again = rounded(job, thread, job.x, job.x_stride, layer.norm_mlp, layer.up);
        product(job, &layer.up, 1, again, [&](Floats sums, int token, int tile) {
            store(gated_at(token, tile), mul(load(gated_at(token, tile)), sums));
        });
    } else {
        Floats gates[kWidth] = {};
        product(job, &layer.gate_up, 1, in, [&](Floats sums, int token, int tile) {
            if (tile % 2 == 0)
                gates[token % kWidth] = silu(sums);
            else
                store(gated_at(token, tile / 2), mul(gates[token % kWidth], sums));
        });
    }
    meet(*job.team);
    const Rounded gated = rounded(job, thread, job.gated, wide, nullptr, layer.down);
    product(job, &layer.down, 1, gated, [&](Floats sums, int token, int tile) {
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
        store(x, add(load(x), sums));
    });
    meet(*job.team);
}

inline void logits_of(Job &job, int thread) {
    const h2o_matrix &m = job.frame->head;
    const Rounded in = rounded(job, thread, job.x, job.x_stride, job.frame->norm, m);
    product(job, &m, 1, in, [&](Floats sums, int token, int tile) {
        const int row = job.rows ? job.rows[token] : token;
        float *logits = job.logits + row * job.logits_stride + 16 * tile;
        const int missing = 16 * (tile + 1) - job.frame->vocabulary;
        if (missing <= 0) {
            store(logits, sums);
            return;
        }
        float some[16];  // the last tile may be longer than the vocabulary
        store(some, sums);
        std::memcpy(logits, some, sizeof(float) * (16 - missing));
    });
    meet(*job.team);
}

void decode(Job &job, int thread) {
    const Sizes of(*job.frame);
    embed_tokens(job);
    for (int number = 0; number < job.frame->layer_count; ++number) {
        const h2o_layer &layer = job.frame->layers[number];
        const h2o_slots &slots = job.step->slots[number];
        queries_keys_values(job, thread, layer);
        attend(job, thread, layer, slots);
        output(job, thread, layer);
        gated_mlp(job, thread, layer);
    }
    logits_of(job, thread);
}

// -- layer by layer -------------------------------------------------------------------------------------------------

void embed(Job &job, int) { embed_tokens(job); }

void before(Job &job, int thread) {
    const Sizes of(*job.frame);
    const h2o_layer &layer = job.frame->layers[job.layer];
    queries_keys_values(job, thread, layer);
    by_tokens(job, [&](int token) {
        float *all = job.qkv + static_cast<ptrdiff_t>(token) * of.rows;
        for (int head = 0; head < of.heads; ++head)
            turned_head(job, layer, token, layer.norm_query, all + head * of.size);
        float *keys = all + of.heads * of.size;
        for (int head = 0; head < of.kv_heads; ++head)
            turned_head(job, layer, token, layer.norm_key, keys + head * of.size);
        const ptrdiff_t queries = of.heads * of.size, others = of.kv_heads * of.size;
        std::memcpy(job.queries + token * queries, all, sizeof(float) * queries);
        std::memcpy(job.keys + token * others, keys, sizeof(float) * others);
        std::memcpy(job.values + token * others, keys + others, sizeof(float) * others);
    });
    meet(*job.team);
}

void after(Job &job, int thread) {
    const Sizes of(*job.frame);
    const h2o_layer &layer = job.frame->layers[job.layer];
    by_tokens(job, [&](int token) {
        std::memcpy(job.attended + static_cast<ptrdiff_t>(token) * layer.out.columns,
                    job.in + static_cast<ptrdiff_t>(token) * of.heads * of.size, sizeof(float) * of.heads * of.size);
    });
    meet(*job.team);
    output(job, thread, layer);
    gated_mlp(job, thread, layer);
}

void head(Job &job, int thread) { logits_of(job, thread); }

}  // namespace
