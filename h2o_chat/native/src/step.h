// A token's way: embedding; per layer norm, products, RoPE, slots, attention, MLP; head.
//
// All threads run these functions together: each takes shares of a phase's work, and they meet between phases.

#pragma once

#include <cstring>

#include "attention.h"

namespace {

inline int group_bytes(const h2o_matrix &m) { return m.bits == 8 ? 64 : 32; }

// The rounded activations of all tokens, shared by all threads, for a product with m.
inline Rounded shared(const Job &job, const h2o_matrix &m) {
    return {job.numbers, job.scales, job.begins, m.columns, job.tokens < kWidth ? job.tokens : kWidth, group_bytes(m)};
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
    own.rounded.bytes = group_bytes(m);
    const bool alone = job.tokens == 1;
    const Rounded all = alone ? own.rounded : shared(job, m);
    const auto one = [&](int token) {
        const float *from = x + static_cast<ptrdiff_t>(token) * stride;
        if (weight) {
            for (int i = job.frame->hidden; i < columns; ++i) own.floats[i] = 0;
            norm(from, weight, job.frame->hidden, job.frame->epsilon, own.floats);
            from = own.floats;
        }
        round_to_bytes(from, m.bits == 8, all.of(token));
    };
    if (alone) {
        one(0);
        return all;
    }
    by_tokens(job, one);
    meet(*job.team);
    return all;
}

// Rows of the embedding, dequantised; 0 behind them (`copy_rows`).
inline void embed_tokens(Job &job) {
    const h2o_matrix &m = job.frame->embedding;
    const int groups = m.columns / 32, tile_bytes = m.bits == 4 ? 256 : 512;
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;) {
        const ptrdiff_t tile = job.ids[token] / 16, row = job.ids[token] % 16;
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride;
        for (int i = job.frame->hidden; i < job.x_stride; ++i) x[i] = 0;
        for (int i = 0; i < job.frame->hidden; ++i) {
            const int group = i / 32, at = i % 32;
            const uint8_t *weights = m.weights + (tile * groups + group) * tile_bytes;
            const int j = m.bits == 4 ? at % 16 / 4 : at / 4;
            const int byte = weights[64 * j + 4 * row + at % 4];
            const int q = m.bits == 8 ? byte - 128 : (at < 16 ? byte & 15 : byte >> 4) - 8;
            float scales[16];
            store(scales, load_halves(m.scales + (tile * groups + group) * 16));
            x[i] = static_cast<float>(q) * scales[row];
        }
    }
    meet(*job.team);
}

inline void queries_keys_values(Job &job, int thread, const h2o_layer &layer) {
    const Rounded in = rounded(job, thread, job.x, job.x_stride, layer.norm_attention, layer.qkv);
    product(job, layer.qkv, in, [&](Floats sums, int token, int tile) {
        if (layer.bias_qkv) sums = add(sums, load(layer.bias_qkv + 16 * tile));
        store(job.qkv + static_cast<ptrdiff_t>(token) * layer.qkv.rows + 16 * tile, sums);
    });
    meet(*job.team);
}

// Attended [N, columns of out] -> x.
inline void output(Job &job, int thread, const h2o_layer &layer) {
    const Rounded in = rounded(job, thread, job.attended, layer.out.columns, nullptr, layer.out);
    product(job, layer.out, in, [&](Floats sums, int token, int tile) {
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
        store(x, add(load(x), sums));
    });
    meet(*job.team);
}

inline void gated_mlp(Job &job, int thread, const h2o_layer &layer) {
    const int wide = layer.down.columns;
    const Rounded in = rounded(job, thread, job.x, job.x_stride, layer.norm_mlp, layer.gate_up);
    Floats gates[kWidth] = {};
    product(job, layer.gate_up, in, [&](Floats sums, int token, int tile) {
        if (tile % 2 == 0) {
            gates[token % kWidth] = silu(sums);
            return;
        }
        store(job.gated + static_cast<ptrdiff_t>(token) * wide + 8 * (tile - 1), mul(gates[token % kWidth], sums));
    });
    meet(*job.team);
    const Rounded gated = rounded(job, thread, job.gated, wide, nullptr, layer.down);
    product(job, layer.down, gated, [&](Floats sums, int token, int tile) {
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
        store(x, add(load(x), sums));
    });
    meet(*job.team);
}

inline void logits_of(Job &job, int thread) {
    const h2o_matrix &m = job.frame->head;
    const Rounded in = rounded(job, thread, job.x, job.x_stride, job.frame->norm, m);
    product(job, m, in, [&](Floats sums, int token, int tile) {
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
