// A token's way: embedding; per layer norm, products, RoPE, slots, attention, MLP; head. Included after lanes_*.h.
//
// All threads run these functions together: each takes shares of a phase's work, and they meet between phases.

#pragma once

#include <cstring>
#include <type_traits>

#include "kernels.h"

namespace {

struct Sizes {
    int heads, kv_heads, groups, size, rows;  // query heads, KV heads, G, D, rows of qkv

    explicit Sizes(const h2o_frame &frame)
        : heads(frame.heads), kv_heads(frame.kv_heads), groups(frame.heads / frame.kv_heads), size(frame.head_size),
          rows(frame.layers[0].qkv.rows) {}
};

inline int group_bytes(const h2o_matrix &m) { return m.bits == 8 ? 64 : 32; }

// What all threads have of all tokens, for a product with m.
inline Rounded shared(const Job &job, const h2o_matrix &m) {
    return {job.numbers, job.scales, job.begins, m.columns, job.tokens < kWidth ? job.tokens : kWidth, group_bytes(m)};
}

// A thread's own room: floats, then rounded numbers, of one token.
struct Own {
    float *floats;
    Rounded rounded;

    Own(const Job &job, int thread) {
        char *at = job.own + job.own_bytes * thread;
        const size_t widest = job.own_bytes / 16;  // floats, and as many numbers, scales and sums beside them
        floats = reinterpret_cast<float *>(at);
        rounded.scales = floats + widest;
        rounded.begins = reinterpret_cast<int32_t *>(rounded.scales + widest);
        rounded.numbers = reinterpret_cast<int8_t *>(rounded.begins + widest);
        rounded.width = 1;
    }
};

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
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;) one(token);
    meet(*job.team);
    return all;
}

// Rows of the embedding, dequantised.
inline void embed_tokens(Job &job) {
    const h2o_matrix &m = job.frame->embedding;
    const int groups = m.columns / 32, tile_bytes = m.bits == 4 ? 256 : 512;
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;) {
        const ptrdiff_t tile = job.ids[token] / 16, row = job.ids[token] % 16;
        float *x = job.x + static_cast<ptrdiff_t>(token) * job.x_stride;
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

// A head, normed if the layer does so, and turned to the token's rotation index.
inline void turned_head(const Job &job, const h2o_layer &layer, int token, const float *weight, float *head) {
    const int size = job.frame->head_size;
    if (weight) norm(head, weight, size, job.frame->epsilon, head);
    if (layer.rope < 0) return;
    const ptrdiff_t at = (static_cast<ptrdiff_t>(layer.rope) * job.tokens + token) * job.most_pairs;
    turn(head, job.cosines + at, job.sines + at, job.frame->ropes[layer.rope].pairs, size, head);
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

// -- a decoded token: slots and attention ---------------------------------------------------------------------------

// The slots of one row and KV head: where they begin in states [R, H, S].
inline ptrdiff_t first_slot(const Job &job, const h2o_slots &slots, int token, int head) {
    return (static_cast<ptrdiff_t>(job.rows[token]) * job.frame->kv_heads + head) * slots.slots;
}

// Numbers as a row of bytes: levels, then their lowest value and step in fp16.
inline void to_bytes(const float *x, int size, int bits, uint8_t *row) {
    const float most = static_cast<float>((1 << bits) - 1);
    float low = x[0], high = x[0];
    for (int i = 1; i < size; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    uint16_t scale[2] = {to_half(low), to_half((high - low) / most)};
    low = from_half(scale[0]);
    const float step = from_half(scale[1]), by = step > 0 ? step : 1.0f;
    const auto level = [&](int i) {
        const float at = __builtin_nearbyintf((x[i] - low) / by);
        return static_cast<uint8_t>(at > 0 ? at < most ? at : most : 0);
    };
    if (bits == 8)
        for (int i = 0; i < size; ++i) row[i] = level(i);
    else
        for (int i = 0; i < size; i += 2) row[i / 2] = static_cast<uint8_t>(level(i) | level(i + 1) << 4);
    std::memcpy(row + size * bits / 8, scale, sizeof scale);
}

template <int bits>
inline void from_bytes(const uint8_t *row, int size, float *x) {
    const Floats low = splat_half(row + size * bits / 8), step = splat_half(row + size * bits / 8 + 2);
    for (int i = 0; i < size; i += 16) store(x + i, fma(load_levels(row + i * bits / 8, bits), step, low));
}

// The same of a key, turned by whole positions as `turn_by` does.
template <int bits>
inline void key_from_bytes(const uint8_t *row, int positions, const float *cosines, const float *sines, int stride,
                           int pairs, int size, float *out) {
    if (pairs % 16) {
        from_bytes<bits>(row, size, out);
        return turn_by(out, positions, cosines, sines, stride, pairs, size, out);
    }
    const ptrdiff_t at = static_cast<ptrdiff_t>(positions < 0 ? -positions : positions) * stride;
    const Floats low = splat_half(row + size * bits / 8), step = splat_half(row + size * bits / 8 + 2);
    const auto unpacked = [&](int i) { return fma(load_levels(row + i * bits / 8, bits), step, low); };
    const Floats sign = splat(positions < 0 ? -1.0f : 1.0f);
    for (int i = 0; i < pairs; i += 16) {
        const Floats a = unpacked(i), b = unpacked(i + pairs), cosine = load(cosines + at + i);
        const Floats sine = mul(sign, load(sines + at + i));
        store(out + i, fma(a, cosine, sub(splat(0.0f), mul(b, sine))));
        store(out + i + pairs, fma(b, cosine, mul(a, sine)));
    }
    for (int i = 2 * pairs; i < size; i += 16) store(out + i, unpacked(i));
}

// Where a stored key or value [R, H, S, ...] is.
inline uint8_t *stored(const Job &job, void *all, ptrdiff_t slot) {
    const ptrdiff_t size = job.frame->head_size;
    const ptrdiff_t bytes = job.step->kv_bits ? size * job.step->kv_bits / 8 + 4 : size * sizeof(float);
    return static_cast<uint8_t *>(all) + slot * bytes;
}

inline void store_numbers(const Job &job, const float *x, uint8_t *to) {
    if (job.step->kv_bits)
        to_bytes(x, job.frame->head_size, job.step->kv_bits, to);
    else
        std::memcpy(to, x, sizeof(float) * job.frame->head_size);
}

// Keys and values of the token into the first empty slot of each KV head.
inline void write_slots(Job &job, const h2o_layer &layer, const h2o_slots &slots) {
    const Sizes of(*job.frame);
    const h2o_step &step = *job.step;
    for (int unit; (unit = take(job.team->next, 1, job.tokens * of.kv_heads)) >= 0;) {
        const int token = unit / of.kv_heads, head = unit % of.kv_heads, row = job.rows[token];
        float *all = job.qkv + static_cast<ptrdiff_t>(token) * of.rows;
        for (int g = 0; g < of.groups; ++g)
            turned_head(job, layer, token, layer.norm_query, all + (head * of.groups + g) * of.size);
        float *key = all + (of.heads + head) * of.size;
        const float *value = all + (of.heads + of.kv_heads + head) * of.size;
        const ptrdiff_t first = first_slot(job, slots, token, head);
        const ptrdiff_t slot = first + slots.order[first + step.in_use[row]];
        if (step.kv_bits) {
            if (layer.norm_key) norm(key, layer.norm_key, of.size, job.frame->epsilon, key);
        } else {
            turned_head(job, layer, token, layer.norm_key, key);
        }
        store_numbers(job, key, stored(job, slots.keys, slot));
        store_numbers(job, value, stored(job, slots.values, slot));
        slots.positions[slot] = step.positions[row];
        slots.prompt[slot] = step.of_prompt != 0;
        slots.protect[slot] = step.protect[row];
    }
    meet(*job.team);
}

// Slots that a thread asks at once: it begins to wait for memory anew with each run of them.
constexpr int kSlotsAsked = 272;

// The slots of one row and KV head, as numbers.
struct Held {
    const Job &job;
    const h2o_layer &layer;
    const h2o_slots &slots;
    int row, size, newest;  // newest: the token's own slot
    ptrdiff_t first;
    float *room;  // [kUnpacked, D], where slots hold bytes

    Held(const Job &job, int thread, const h2o_layer &layer, const h2o_slots &slots, int token, int head)
        : job(job), layer(layer), slots(slots), row(job.rows[token]), size(job.frame->head_size),
          first(first_slot(job, slots, token, head)) {
        newest = slots.order[first + job.step->in_use[row]];
        room = job.numbers_held + static_cast<ptrdiff_t>(thread) * kUnpacked * size;
    }

    // Keys, turned, of slots from s on: where they lie, or `count` of them unpacked into the thread's room.
    const float *keys(int s, int count) const {
        switch (job.step->kv_bits) {
            case 8: return unpacked_keys<8>(s, count);
            case 4: return unpacked_keys<4>(s, count);
            default: return static_cast<const float *>(slots.keys) + (first + s) * size;
        }
    }

    const float *values(int s, int count) const {
        switch (job.step->kv_bits) {
            case 8: return unpacked_values<8>(s, count);
            case 4: return unpacked_values<4>(s, count);
            default: return static_cast<const float *>(slots.values) + (first + s) * size;
        }
    }

    template <int bits>
    const float *unpacked_keys(int s, int count) const {
        const h2o_step &step = *job.step;
        const ptrdiff_t slot = first + s, bytes = size * bits / 8 + 4;
        const uint8_t *row = static_cast<const uint8_t *>(slots.keys) + slot * bytes;
        const ptrdiff_t at = layer.rope * job.table_pairs;
        float *key = room;
        for (int i = 0; i < count; ++i, row += bytes, key += size) {
            if (layer.rope < 0 || slots.positions[slot + i] < 0) {
                from_bytes<bits>(row, size, key);
                continue;
            }
            const int index = s + i == newest ? step.index[this->row] : slots.index[slot + i];
            key_from_bytes<bits>(row, index, job.table_cosines + at, job.table_sines + at, job.most_pairs,
                                 job.frame->ropes[layer.rope].pairs, size, key);
        }
        return room;
    }

    template <int bits>
    const float *unpacked_values(int s, int count) const {
        const ptrdiff_t bytes = size * bits / 8 + 4;
        const uint8_t *row = static_cast<const uint8_t *>(slots.values) + (first + s) * bytes;
        for (int i = 0; i < count; ++i, row += bytes) from_bytes<bits>(row, size, room + static_cast<ptrdiff_t>(i) * size);
        return room;
    }
};

// Where the probabilities of a query head are: [slots rounded up to 16].
inline float *weights_of(const Job &job, int token, int head) {
    return job.weights + (static_cast<ptrdiff_t>(token) * job.frame->heads + head) * job.weights_stride;
}

// Products of some query heads with sixteen keys; they go to `out`, of each head `stride` apart. `kSize` is D where it is
// known; each key has queries of its own unless all have the `same`.
template <int heads, int kSize, bool same>
inline void sixteen_keys(const float *const *queries, const float *const *keys, int size, Floats by, float *out,
                         ptrdiff_t stride) {
    constexpr int together = at_once(heads);
    if (kSize) size = kSize;
    const float *const all_ask = queries[0];
    constexpr bool in_quarters = kQuarters && together % 4 == 0;
    Floats all[heads][in_quarters ? 4 : 16];
    constexpr int parts = kSize / 16;
    constexpr bool stay = same && parts && heads * parts <= kSumsAtOnce;  // the queries, in registers
    Floats asked[heads][stay ? parts : 1];
    if constexpr (stay)
        for (int h = 0; h < heads; ++h)
            for (int part = 0; part < parts; ++part) asked[h][part] = load(all_ask + h * size + 16 * part);
    for (int first = 0; first < 16; first += together) {
        Floats some[together][heads];
        for (auto &key : some)
            for (Floats &one : key) one = splat(0.0f);
        if constexpr (stay || !same) {  // key after key: the processor sees what will be read next
            for (int i = 0; i < together; ++i)
                for (int d = 0; d < size; d += 16) {
                    const Floats key = load(keys[first + i] + d);
                    for (int h = 0; h < heads; ++h)
                        some[i][h] = fma(stay ? asked[h][stay ? d / 16 : 0] : load(queries[first + i] + h * size + d),
                                         key, some[i][h]);
                }
        } else {  // some keys at once: a query is loaded once for them
            for (int d = 0; d < size; d += 16) {
                for (int h = 0; h < heads; ++h) asked[h][0] = load(all_ask + h * size + d);
                for (int i = 0; i < together; ++i) {
                    const Floats key = load(keys[first + i] + d);
                    for (int h = 0; h < heads; ++h) some[i][h] = fma(asked[h][0], key, some[i][h]);
                }
            }
        }
        for (int h = 0; h < heads; ++h)
            if constexpr (in_quarters)
                for (int i = 0; i < together; i += 4)
                    all[h][(first + i) / 4] = quarters(some[i][h], some[i + 1][h], some[i + 2][h], some[i + 3][h]);
            else
                for (int i = 0; i < together; ++i) all[h][first + i] = some[i][h];
    }
    for (int h = 0; h < heads; ++h)
        if constexpr (in_quarters)
            store(out + h * stride, mul(sums_of_quarters(all[h][0], all[h][1], all[h][2], all[h][3]), by));
        else
            store(out + h * stride, mul(sums(all[h]), by));
}

template <int heads, bool same>
inline void sixteen_keys(const float *const *queries, const float *const *keys, int size, Floats by, float *out,
                         ptrdiff_t stride) {
    if (size == 64)
        sixteen_keys<heads, 64, same>(queries, keys, size, by, out, stride);
    else if (size == 128)
        sixteen_keys<heads, 128, same>(queries, keys, size, by, out, stride);
    else
        sixteen_keys<heads, 0, same>(queries, keys, size, by, out, stride);
}

// Calls `some` with as many query heads as a form takes at once, and the first of them, until it has had all.
template <class Some>
inline void by_heads(int heads, Some some) {
    for (int first = 0; first < heads;) {
        const int left = heads - first;
        if (left >= 4)
            some(std::integral_constant<int, 4>(), first);
        else if (left == 3)
            some(std::integral_constant<int, 3>(), first);
        else if (left == 2)
            some(std::integral_constant<int, 2>(), first);
        else
            some(std::integral_constant<int, 1>(), first);
        first += left < 4 ? left : 4;
    }
}

// All queries of a KV head ask its slots from `start` to `end`, multiples of 16: products, scaled, go into the weights.
inline void ask(Job &job, const h2o_layer &layer, const h2o_slots &slots, const Held &held, int token, int head,
                int start, int end, float *far) {
    const Sizes of(*job.frame);
    const h2o_step &step = *job.step;
    const ptrdiff_t first = first_slot(job, slots, token, head);
    const float *queries = job.qkv + static_cast<ptrdiff_t>(token) * of.rows + head * of.groups * of.size;
    const bool clamps = step.clamps && layer.rope >= 0;
    if (clamps) {
        const ptrdiff_t at = (static_cast<ptrdiff_t>(layer.rope) * job.tokens + token) * job.most_pairs;
        for (int g = 0; g < of.groups; ++g)
            turn(queries + g * of.size, job.edge_cosines + at, job.edge_sines + at, job.frame->ropes[layer.rope].pairs,
                 of.size, far + g * of.size);
    }
    const ptrdiff_t stride = job.weights_stride;
    const Floats scaling = splat(1.0f / __builtin_sqrtf(static_cast<float>(of.size)));
    float *weights = weights_of(job, token, head * of.groups);
    for (int s = start; s < end; s += 16) {
        const int some = slots.used - s < 16 ? slots.used - s : 16;
        const float *keys = held.keys(s, some), *asked[16], *key[16];
        bool far_ones = false;
        for (int i = 0; i < 16; ++i) {
            const int at = i < some ? i : some - 1;
            const bool is_far = clamps && slots.clamped[first + s + at];
            far_ones |= is_far;
            asked[i] = is_far ? far : queries;
            key[i] = keys + static_cast<ptrdiff_t>(at) * of.size;
        }
        by_heads(of.groups, [&](auto heads, int g) {
            if (!far_ones) {
                const float *const all_ask = queries + g * of.size;
                sixteen_keys<heads, true>(&all_ask, key, of.size, scaling, weights + g * stride + s, stride);
                return;
            }
            const float *of_these[16];
            for (int i = 0; i < 16; ++i) of_these[i] = asked[i] + g * of.size;
            sixteen_keys<heads, false>(of_these, key, of.size, scaling, weights + g * stride + s, stride);
        });
    }
    const int row = job.rows[token];
    // Slots at positions from here on are seen: not empty ones, at -1, nor what is out of the layer's window.
    const int32_t seen_from = layer.sees && step.positions[row] >= layer.sees ? step.positions[row] - layer.sees + 1 : 0;
    for (int s = start; s < end; ++s) {
        if (s < slots.used && slots.positions[first + s] >= seen_from) continue;
        for (int g = 0; g < of.groups; ++g) weights[g * stride + s] = -3e38f;
    }
}

// The weights of a query head become probabilities.
inline void softmax(float *weights, int padded) {
    Floats most = load(weights);
    for (int s = 16; s < padded; s += 16) most = max(most, load(weights + s));
    const Floats top = splat(highest(most));
    Floats all = splat(0.0f);
    for (int s = 0; s < padded; s += 16) {
        const Floats e = exp_of_negative(sub(load(weights + s), top));
        store(weights + s, e);
        all = add(all, e);
    }
    const Floats by = splat(1.0f / sum(all));
    for (int s = 0; s < padded; s += 16) store(weights + s, mul(load(weights + s), by));
}

// Sums of probability x value: `heads` queries, 16 x `parts` components, so many that the sums stay in registers. What
// they give stands `size` apart; it is added to what is there, if this is not the `start`.
template <int heads, int parts>
inline void weighted(const float *weights, int stride, const float *values, int used, int size, float *out,
                     bool start = true) {
    Floats sums[heads][parts];
    for (int h = 0; h < heads; ++h)
        for (int p = 0; p < parts; ++p) sums[h][p] = start ? splat(0.0f) : load(out + h * size + 16 * p);
    for (int s = 0; s < used; ++s, values += size) {
        Floats value[parts];
        for (int p = 0; p < parts; ++p) value[p] = load(values + 16 * p);
        for (int h = 0; h < heads; ++h) {
            const Floats weight = splat(weights[h * static_cast<ptrdiff_t>(stride) + s]);
            for (int p = 0; p < parts; ++p) sums[h][p] = fma(weight, value[p], sums[h][p]);
        }
    }
    for (int h = 0; h < heads; ++h)
        for (int p = 0; p < parts; ++p) store(out + h * size + 16 * p, sums[h][p]);
}

// What all queries of a KV head attend to: some slots after the other, of these up to 64 components at a time.
inline void answer(Job &job, const h2o_layer &layer, const h2o_slots &slots, const Held &held, int token, int head) {
    const Sizes of(*job.frame);
    float *out = job.attended + static_cast<ptrdiff_t>(token) * layer.out.columns + head * of.groups * of.size;
    for (int s = 0; s < slots.used; s += kUnpacked) {
        const int some = slots.used - s < kUnpacked ? slots.used - s : kUnpacked;
        const float *values = held.values(s, some);
        by_heads(of.groups, [&](auto heads, int g) {
            constexpr int parts = at_once(heads) < 4 ? at_once(heads) : 4;
            const float *weights = weights_of(job, token, head * of.groups + g) + s;
            float *to = out + g * of.size;
            int i = 0;
            for (; i + 16 * parts <= of.size; i += 16 * parts)
                weighted<heads, parts>(weights, job.weights_stride, values + i, some, of.size, to + i, s == 0);
            for (; i < of.size; i += 16)
                weighted<heads, 1>(weights, job.weights_stride, values + i, some, of.size, to + i, s == 0);
        });
    }
}

// Adds the probabilities of a KV head's queries to its slots' scores. `kGroups` is G where it is known.
template <int kGroups>
inline void add_scores(const Job &job, const h2o_slots &slots, int token, int head) {
    const h2o_step &step = *job.step;
    const int groups = kGroups ? kGroups : Sizes(*job.frame).groups;
    const ptrdiff_t first = first_slot(job, slots, token, head), stride = job.weights_stride;
    const float *__restrict weights = weights_of(job, token, head * groups);
    float *__restrict score = slots.score + first * groups;
    const float forget = step.forget;
    for (int s = 0; s < slots.used; ++s)
        for (int g = 0; g < groups; ++g)
            score[s * groups + g] = fma(score[s * groups + g], forget, weights[g * stride + s]);
    if (!slots.lately) return;
    const float share = (1.0f - step.remember) / static_cast<float>(groups), remember = step.remember;
    float *__restrict lately = slots.lately + first;
    for (int s = 0; s < slots.used; ++s) {
        float received = 0;
        for (int g = 0; g < groups; ++g) received += weights[g * stride + s];
        lately[s] = fma(lately[s], remember, received * share);
    }
}

inline void add_scores(const Job &job, const h2o_slots &slots, int token, int head) {
    switch (Sizes(*job.frame).groups) {
        case 1: return add_scores<1>(job, slots, token, head);
        case 2: return add_scores<2>(job, slots, token, head);
        case 3: return add_scores<3>(job, slots, token, head);
        case 4: return add_scores<4>(job, slots, token, head);
        case 8: return add_scores<8>(job, slots, token, head);
        default: return add_scores<0>(job, slots, token, head);
    }
}

// A token's queries attend to the slots: probabilities into job.weights, output into job.attended, scores into slots. In
// shares so small that an odd number of KV heads leaves no thread waiting for long.
inline void attend(Job &job, int thread, const h2o_layer &layer, const h2o_slots &slots) {
    const Sizes of(*job.frame);
    const int padded = (slots.used + 15) & ~15, all = job.tokens * of.kv_heads;
    const int runs = (padded + kSlotsAsked - 1) / kSlotsAsked;
    float *far = Own(job, thread).floats;
    for (int unit; (unit = take(job.team->next, 1, all * runs)) >= 0;) {
        const int token = unit / runs / of.kv_heads, head = unit / runs % of.kv_heads;
        const int start = unit % runs * kSlotsAsked, end = start + kSlotsAsked;
        ask(job, layer, slots, Held(job, thread, layer, slots, token, head), token, head, start,
            end < padded ? end : padded, far);
    }
    meet(*job.team);
    for (int unit; (unit = take(job.team->next, 1, all * of.groups)) >= 0;)
        softmax(weights_of(job, unit / of.heads, unit % of.heads), padded);
    meet(*job.team);
    for (int unit; (unit = take(job.team->next, 1, 2 * all)) >= 0;) {  // outputs, then scores, which take less
        const int token = unit % all / of.kv_heads, head = unit % all % of.kv_heads;
        if (unit < all)
            answer(job, layer, slots, Held(job, thread, layer, slots, token, head), token, head);
        else
            add_scores(job, slots, token, head);
    }
    meet(*job.team);
}

void decode(Job &job, int thread) {
    const Sizes of(*job.frame);
    embed_tokens(job);
    for (int number = 0; number < job.frame->layer_count; ++number) {
        const h2o_layer &layer = job.frame->layers[number];
        const h2o_slots &slots = job.step->slots[number];
        queries_keys_values(job, thread, layer);
        write_slots(job, layer, slots);
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
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;) {
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
    }
    meet(*job.team);
}

void after(Job &job, int thread) {
    const Sizes of(*job.frame);
    const h2o_layer &layer = job.frame->layers[job.layer];
    for (int token; (token = take(job.team->next, 1, job.tokens)) >= 0;)
        std::memcpy(job.attended + static_cast<ptrdiff_t>(token) * layer.out.columns,
                    job.in + static_cast<ptrdiff_t>(token) * of.heads * of.size, sizeof(float) * of.heads * of.size);
    meet(*job.team);
    output(job, thread, layer);
    gated_mlp(job, thread, layer);
}

void head(Job &job, int thread) { logits_of(job, thread); }

}  // namespace
