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
        for (int i = 0; i < job.frame->hidden; ++i) x[i] *= job.frame->embedding_scale;
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
    if (!layer.norm_queries) return;
    const Sizes of(*job.frame);
    by_tokens(job, [&](int token) {
        float *queries = job.qkv + static_cast<ptrdiff_t>(token) * rows, *keys = queries + of.heads * of.size;
        norm(queries, layer.norm_queries, of.heads * of.size, job.frame->epsilon, queries);
        norm(keys, layer.norm_keys, of.kv_heads * of.size, job.frame->epsilon, keys);
    });
    meet(*job.team);
}

inline Floats biased(Floats sums, const float *bias, int tile) { return bias ? add(sums, load(bias + 16 * tile)) : sums; }

// Sixteen numbers that a layer gives are added to x, or wait in job.qkv if they are to be normed (`add_normed`).
inline void give(const Job &job, const float *normed, int token, int tile, Floats numbers) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
    if (normed)
        store(job.qkv + at, numbers);
    else
        store(job.x + at, fma(splat(job.frame->residual_scale), numbers, load(job.x + at)));
}

// Norms what has been given and adds it to x, unless there is no such norm.
inline void add_normed(Job &job, const float *weight) {
    if (!weight) return;
    const h2o_frame &frame = *job.frame;
    by_tokens(job, [&](int token) {
        const ptrdiff_t row = static_cast<ptrdiff_t>(token) * job.x_stride;
        norm(job.qkv + row, weight, frame.hidden, frame.epsilon, job.qkv + row);
        for (ptrdiff_t at = row; at < row + frame.hidden; at += 16)
            store(job.x + at, fma(splat(frame.residual_scale), load(job.qkv + at), load(job.x + at)));
    });
    meet(*job.team);
}

// Attended [N, columns of out] -> x.
inline void output(Job &job, int thread, const h2o_layer &layer) {
    const Rounded in = rounded(job, thread, job.attended, layer.out.columns, nullptr, layer.out);
    product(job, &layer.out, 1, in, [&](Floats sums, int token, int tile) {
        give(job, layer.norm_attended, token, tile, biased(sums, layer.bias_out, tile));
    });
    meet(*job.team);
    add_normed(job, layer.norm_attended);
}

inline float *routed_of(const Job &job, int token) {
    return job.routed + static_cast<ptrdiff_t>(token) * ((job.frame->experts + 15) & ~15);
}

// Scores become shares of the likeliest experts, and 0 of others. NaN stays.
inline void choose(const h2o_frame &frame, float *routed) {
    softmax(routed, (frame.experts + 15) & ~15);
    bool chosen[kMostExperts] = {};
    float whole = 0;
    for (int i = 0; i < frame.chosen; ++i) {
        int best = -1;
        for (int e = 0; e < frame.experts; ++e)
            if (!chosen[e] && (best < 0 || routed[e] > routed[best])) best = e;
        chosen[best] = true;
        whole += routed[best];
    }
    for (int e = 0; e < frame.experts; ++e) {
        if (frame.shares_add_up) routed[e] /= whole;
        if (!chosen[e]) routed[e] = 0;
    }
}

// Which experts each token takes: scores in fp32, since rounded numbers might choose others.
inline void route(Job &job, int thread, const h2o_layer &layer) {
    const h2o_frame &frame = *job.frame;
    const int runs = (frame.experts + 15) / 16;
    float *normed = Own(job, thread).floats;
    int is_normed = -1;
    for (int unit; (unit = take(job.team->next, 1, job.tokens * runs)) >= 0;) {
        const int token = unit / runs, from = unit % runs * 16;
        const float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride;
        if (token != is_normed) norm(x, layer.norm_mlp, frame.hidden, frame.epsilon, normed);
        is_normed = token;
        for (int e = from; e < from + 16; ++e)
            routed_of(job, token)[e] =
                e >= frame.experts ? -3e38f
                                   : dot(normed, layer.router + static_cast<ptrdiff_t>(e) * frame.hidden, frame.hidden) +
                                         (layer.bias_router ? layer.bias_router[e] : 0.0f);
    }
    meet(*job.team);
    by_tokens(job, [&](int token) { choose(frame, routed_of(job, token)); });
    meet(*job.team);
    if (take(job.team->next, 1, 1) == 0) {
        Experts &experts = *job.experts;
        experts.count = 0;
        for (int e = 0, first = 0; e < frame.experts; ++e) {
            Expert one = {e, first, 0};
            for (int token = 0; token < job.tokens; ++token)
                if (routed_of(job, token)[e] != 0) job.takers[first + one.count++] = token;
            if (one.count) experts.all[experts.count++] = one;
            first += one.count < kWidth ? one.count : (one.count + kWidth - 1) / kWidth * kWidth;
        }
    }
    meet(*job.team);
}

// The rounded activations of an expert's tokens, for a product with m.
inline Rounded shared_of(const Job &job, const h2o_matrix &m, const Expert &expert) {
    const ptrdiff_t groups = static_cast<ptrdiff_t>(expert.first) * (m.columns / 32);
    const int width = expert.count < kWidth ? expert.count : kWidth, bytes = two_bytes(m) ? 64 : 32;
    return {job.numbers + groups * bytes, job.scales + groups, job.sums + 2 * groups, m.columns, width, bytes};
}

// A thread's share of each expert's products with its tokens: a run of tiles at a time, expert after expert, so that what is
// added to a token has one order. What is multiplied are tokens' numbers, normed; or, without a weight, takers' numbers.
// `out(sums, taker, tile, expert)`.
template <class Out>
inline void experts_times(Job &job, int thread, const float *x, int stride, const float *weight, const h2o_layer &layer,
                          const h2o_matrix h2o_mlp::*which, const Out &out) {
    const h2o_frame &frame = *job.frame;
    const h2o_matrix &any = layer.mlp->*which;
    float *normed = Own(job, thread).floats;
    for (int i; (i = take(job.team->next, 1, job.experts->count)) >= 0;) {
        const Expert &expert = job.experts->all[i];
        for (int b = 0; b < expert.count; ++b) {
            const int row = weight ? job.takers[expert.first + b] : expert.first + b;
            const float *from = x + static_cast<ptrdiff_t>(row) * stride;
            if (weight) {
                norm(from, weight, frame.hidden, frame.epsilon, normed);
                for (int column = frame.hidden; column < any.columns; ++column) normed[column] = 0;
                from = normed;
            }
            round_to_bytes(from, two_bytes(any), shared_of(job, any, expert).of(b));
        }
    }
    meet(*job.team);
    const int tiles = any.rows / 16, run = run_of(job, tiles);
    for (int first; (first = take(job.team->next, run, tiles)) >= 0;)
        for (int i = 0; i < job.experts->count; ++i) {
            const Expert &expert = job.experts->all[i];
            const h2o_matrix &m = layer.mlp[expert.number].*which;
            tiles_times(m, first, first + run < tiles ? first + run : tiles, shared_of(job, m, expert), expert.count,
                        [&](Floats sums, int b, int tile) { out(sums, expert.first + b, tile, expert.number); });
        }
    meet(*job.team);
}

inline Floats gate_of(const h2o_frame &frame, Floats x) {
    if (frame.alpha == 0) return frame.gelu ? gelu(x) : silu(x);
    const Floats alpha = splat(frame.alpha);
    return div(silu(mul(min(x, splat(frame.limit)), alpha)), alpha);
}

inline Floats up_of(const h2o_frame &frame, Floats x) {
    return frame.alpha == 0 ? x : add(splat(1.0f), max(min(x, splat(frame.limit)), splat(-frame.limit)));
}

inline void mlp(Job &job, int thread, const h2o_layer &layer) {
    const h2o_frame &frame = *job.frame;
    if (layer.router) route(job, thread, layer);
    // Rows of tokens, or of takers where there are experts.
    const auto times = [&](const float *x, int stride, const float *weight, const h2o_matrix h2o_mlp::*which,
                           const auto &out) {
        if (layer.router) return experts_times(job, thread, x, stride, weight, layer, which, out);
        const h2o_matrix &m = layer.mlp->*which;
        const Rounded in = rounded(job, thread, x, stride, weight, m);
        product(job, &m, 1, in, [&](Floats sums, int token, int tile) { out(sums, token, tile, 0); });
        meet(*job.team);
    };
    const int wide = layer.mlp->down.columns;
    const auto gated_at = [&](int row, int tile) { return job.gated + static_cast<ptrdiff_t>(row) * wide + 16 * tile; };
    if (layer.mlp->up.rows) {
        times(job.x, job.x_stride, layer.norm_mlp, &h2o_mlp::gate_up,
              [&](Floats sums, int row, int tile, int expert) {
                  store(gated_at(row, tile), gate_of(frame, biased(sums, layer.mlp[expert].bias_gate, tile)));
              });
        times(job.x, job.x_stride, layer.norm_mlp, &h2o_mlp::up, [&](Floats sums, int row, int tile, int expert) {
            const Floats up = up_of(frame, biased(sums, layer.mlp[expert].bias_up, tile));
            store(gated_at(row, tile), mul(load(gated_at(row, tile)), up));
        });
    } else {
        Floats gates[kWidth] = {};
        times(job.x, job.x_stride, layer.norm_mlp, &h2o_mlp::gate_up, [&](Floats sums, int row, int tile, int expert) {
            const h2o_mlp &mine = layer.mlp[expert];
            if (tile % 2 == 0)
                gates[row % kWidth] = gate_of(frame, biased(sums, mine.bias_gate, tile / 2));
            else
                store(gated_at(row, tile / 2), mul(gates[row % kWidth], up_of(frame, biased(sums, mine.bias_up, tile / 2))));
        });
    }
    times(job.gated, wide, nullptr, &h2o_mlp::down, [&](Floats sums, int row, int tile, int expert) {
        sums = biased(sums, layer.mlp[expert].bias_down, tile);
        if (!layer.router) return give(job, layer.norm_fed, row, tile, sums);
        const int token = job.takers[row];
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride + 16 * tile;
        store(x, fma(splat(routed_of(job, token)[expert]), sums, load(x)));
    });
    add_normed(job, layer.norm_fed);
}

inline void logits_of(Job &job, int thread) {
    const h2o_matrix &m = job.frame->head;
    const Rounded in = rounded(job, thread, job.x, job.x_stride, job.frame->norm, m);
    product(job, &m, 1, in, [&](Floats sums, int token, int tile) {
        const int row = job.rows ? job.rows[token] : token;
        float *logits = job.logits + row * job.logits_stride + 16 * tile;
        if (job.frame->logits_cap != 0) sums = capped(sums, job.frame->logits_cap);
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
        mlp(job, thread, layer);
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
    mlp(job, thread, layer);
}

void head(Job &job, int thread) { logits_of(job, thread); }

}  // namespace
