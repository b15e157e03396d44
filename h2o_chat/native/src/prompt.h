// Attention of a prompt, pass by pass: h2o_chat/cache/attention.py, `LayerStep.attended`, says what it computes.
//
// Where the KV heads go evenly among the threads, each is one thread's, which reads from its own cache what it has gathered;
// else each query head is. Queries go through in blocks; what they gave is summed by key, query after query.

#pragma once

#include <cstring>

#include "kernels.h"
#include "step.h"

namespace {

constexpr int kQueries = kTokensAtOnce >= 8 ? 8 : 2;  // that ask a tile at once; their sums stay in registers
constexpr float kNever = -3e38f;

// The keys of one tile, from the slots and from the pass, and the values of its tokens.
inline void gather_tile(const Pass &pass, int unit, int tile, int size, int kv_heads) {
    const h2o_pass &of = *pass.of;
    const int row = unit / kv_heads, head = unit % kv_heads;
    const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * pass.stride + tile * kTile;
    const ptrdiff_t slots = static_cast<ptrdiff_t>(unit) * of.slots;
    const ptrdiff_t new_ones = row * of.key_row + head * of.key_head;
    float *keys = pass.tiles + first * size, *values = pass.values + static_cast<ptrdiff_t>(unit) * of.tokens * size;
    for (int i = 0; i < kTile; ++i) {
        const int at = tile * kTile + i, token = at - of.used[row];
        pass.clamped[first + i] = 0;
        if (token >= of.count[row]) {
            for (int d = 0; d < size; ++d) keys[d * kTile + i] = 0;
            pass.at[first + i] = kNever;
            continue;
        }
        const ptrdiff_t slot = slots + at, new_one = new_ones + token * of.key_token;
        const float *key = token < 0 ? of.held_keys + slot * size : of.keys + new_one;
        for (int d = 0; d < size; ++d) keys[d * kTile + i] = key[d];
        pass.at[first + i] = static_cast<float>(token);
        if (token >= 0) {
            std::memcpy(values + token * size, of.values + new_one, sizeof(float) * size);
            continue;
        }
        const int before = of.positions[slot] - of.first[row];  // from 2^24 on a float has not every whole number
        pass.at[first + i] = of.positions[slot] < 0 ? kNever : before < -(1 << 24) ? -16777216.0f : static_cast<float>(before);
        pass.clamped[first + i] = of.clamped[slot] ? 1.0f : 0.0f;
    }
}

// A thread's room: a block's queries, the same turned to meet clamped keys, output, and probabilities.
struct Block {
    float *asked, *turned, *out, *weights;

    Block(const Pass &pass, int thread, int size) : asked(pass.own + pass.own_floats * thread) {
        turned = asked + kQueries * size;
        out = turned + kQueries * size;
        weights = out + kQueries * size;
    }
};

inline bool some_clamped(const float *clamped) {
    float all = 0;
    for (int i = 0; i < kTile; ++i) all += clamped[i];
    return all > 0;
}

// The logits of a block's queries, up to key `end`; those of keys that a query does not see are far below all others.
template <int queries>
inline void ask_tiles(const Pass &pass, const h2o_frame &frame, const h2o_layer &layer, const Block &block, ptrdiff_t first,
                      int used, int query, int end, int size) {
    const h2o_pass &of = *pass.of;
    const Floats scaling = splat(Sizes(frame).scaling), none = splat(-kNever);
    for (int key = 0; key < end; key += kTile) {
        const float *tile = pass.tiles + (first + key) * size, *clamped = pass.clamped + first + key;
        Floats near[queries][2], far[queries][2];
        tile_products(block.asked, tile, size, near);
        const bool both = of.clamps && layer.rope >= 0 && key < used && some_clamped(clamped);
        if (both) tile_products(block.turned, tile, size, far);
        for (int half = 0; half < 2; ++half) {
            const Floats at = load(pass.at + first + key + 16 * half), is_far = load(clamped + 16 * half);
            for (int q = 0; q < queries; ++q) {
                Floats logits = near[q][half];
                if (both)
                    logits = add(from(is_far, 0.5f, far[q][half]), from(sub(splat(0.5f), is_far), 0.0f, logits));
                const float seen_from = layer.sees ? static_cast<float>(query + q - layer.sees + 1) : 0.5f * kNever;
                logits = mul(logits, scaling);
                if (frame.attention_cap != 0) logits = capped(logits, frame.attention_cap);
                const Floats seen = from(at, seen_from, logits);
                const Floats below = sub(from(at, seen_from, none), none);  // 0, or far below where it is not seen
                store(block.weights + q * pass.stride + key + 16 * half, add(seen, below));
            }
        }
    }
    for (int q = 0; q < queries; ++q)  // the tokens that come after it
        for (int key = used + query + q + 1; key < end; ++key) block.weights[q * pass.stride + key] = kNever;
}

// Weighted sums for a block's queries: of the values of `used` slots, then of `tokens`.
template <int queries>
inline void weigh(const Pass &pass, const Block &block, int unit, int used, int tokens, int size) {
    const h2o_pass &of = *pass.of;
    const float *held = of.held_values + static_cast<ptrdiff_t>(unit) * of.slots * size;
    const float *values = pass.values + static_cast<ptrdiff_t>(unit) * of.tokens * size;
    const auto some = [&](auto parts, int i) {
        weighted<queries, parts>(block.weights, pass.stride, held + i, used, size, block.out + i);
        weighted<queries, parts>(block.weights + used, pass.stride, values + i, tokens, size, block.out + i, false);
    };
    int i = 0;
    for (; i + 32 <= size; i += 32) some(std::integral_constant<int, 2>(), i);
    if (i < size) some(std::integral_constant<int, 1>(), i);
}

// Calls `some` with as many queries as are computed for `count`: fewer cost less.
template <class Some>
inline void by_queries(int count, Some some) {
    if (kQueries > 2 && count <= 2) return some(std::integral_constant<int, 2>());
    if (kQueries > 4 && count <= 4) return some(std::integral_constant<int, 4>());
    some(std::integral_constant<int, kQueries>());
}

// Attention that `count` queries of a block gave to each key, decayed to the end of the pass.
inline void add_up(const Pass &pass, const Block &block, const float *left, int count, int end, float *sums) {
    for (int key = 0; key < end; key += 16) {
        Floats all = load(sums + key);
        for (int q = 0; q < count; ++q) all = fma(load(block.weights + q * pass.stride + key), splat(left[q]), all);
        store(sums + key, all);
    }
}

// Sums of a row's slots and tokens to where the caller has them.
inline void hand_out(const h2o_pass &of, int used, const float *sums, float *out) {
    std::memcpy(out, sums, sizeof(float) * used);
    std::memset(out + used, 0, sizeof(float) * (of.most_used - used));
    std::memcpy(out + of.most_used, sums + used, sizeof(float) * of.tokens);
}

// All queries of one row's query head.
inline void ask_all(Job &job, const Block &block, int row, int head) {
    const Pass &pass = *job.pass;
    const h2o_pass &of = *pass.of;
    const h2o_layer &layer = job.frame->layers[of.layer];
    const Sizes sizes(*job.frame);
    const int size = sizes.size, unit = row * sizes.kv_heads + head / sizes.groups;
    const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * pass.stride, mine = row * sizes.heads + head;
    const float *queries = of.queries + row * of.query_row + head * of.query_head;
    const float *to_score = pass.left + static_cast<ptrdiff_t>(row) * of.tokens;
    const float *to_lately = to_score + static_cast<ptrdiff_t>(of.rows) * of.tokens;
    float *attended = of.attended + mine * of.tokens * size;
    float *gain = block.weights + kQueries * pass.stride, *lately = gain + pass.stride;
    std::memset(gain, 0, sizeof(float) * 2 * pass.stride);
    const int used = of.used[row], count = of.count[row];
    for (int query = 0; query < count; query += kQueries) {
        const int some = count - query < kQueries ? count - query : kQueries;
        const int end = (used + query + some + kTile - 1) / kTile * kTile;
        std::memset(block.asked, 0, sizeof(float) * 2 * kQueries * size);
        for (int q = 0; q < some; ++q) {
            const float *asked = queries + (query + q) * of.query_token;
            std::memcpy(block.asked + q * size, asked, sizeof(float) * size);
            if (of.clamps && layer.rope >= 0)
                turn_by(asked, of.edge - of.index[row] - query - q, pass.cosines, pass.sines, job.most_pairs,
                        job.frame->ropes[layer.rope].pairs, size, block.turned + q * size);
        }
        by_queries(some, [&](auto queries) {
            ask_tiles<queries>(pass, *job.frame, layer, block, first, used, query, end, size);
            for (int q = 0; q < some; ++q) softmax(block.weights + q * pass.stride, end, sink_of(layer, head));
            weigh<queries>(pass, block, unit, used, query + some, size);
        });
        std::memcpy(attended + static_cast<ptrdiff_t>(query) * size, block.out, sizeof(float) * some * size);
        add_up(pass, block, to_score + query, some, end, gain);
        if (of.lately) add_up(pass, block, to_lately + query, some, end, lately);
    }
    std::memset(attended + static_cast<ptrdiff_t>(count) * size, 0, sizeof(float) * (of.tokens - count) * size);
    hand_out(of, used, gain, of.gain + mine * (of.most_used + of.tokens));
    if (of.lately) hand_out(of, used, lately, of.lately + mine * (of.most_used + of.tokens));
}

void attend_pass(Job &job, int thread) {
    const Pass &pass = *job.pass;
    const Sizes of(*job.frame);
    const int tiles = pass.stride / kTile, units = pass.of->rows * of.kv_heads;
    const Block block(pass, thread, of.size);
    if (units % job.team->threads == 0) {
        for (int unit; (unit = take(job.team->next, 1, units)) >= 0;) {
            for (int tile = 0; tile < tiles; ++tile) gather_tile(pass, unit, tile, of.size, of.kv_heads);
            for (int g = 0; g < of.groups; ++g)
                ask_all(job, block, unit / of.kv_heads, unit % of.kv_heads * of.groups + g);
        }
        meet(*job.team);
        return;
    }
    for (int part; (part = take(job.team->next, 1, units * tiles)) >= 0;)
        gather_tile(pass, part / tiles, part % tiles, of.size, of.kv_heads);
    meet(*job.team);
    for (int part; (part = take(job.team->next, 1, units * of.groups)) >= 0;)
        ask_all(job, block, part / of.heads, part % of.heads);
    meet(*job.team);
}

}  // namespace
