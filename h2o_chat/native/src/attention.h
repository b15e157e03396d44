// Attention of a decoded token: its queries ask the slots, and what they attend to is added to the scores.

#pragma once

#include <type_traits>

#include "slots.h"

namespace {

// Slots that a thread asks at once: it begins to wait for memory anew with each run of them.
constexpr int kSlotsAsked = 272;

// Where the probabilities of a KV head's queries are: [G, slots rounded up to 16].
inline float *weights_of(const Job &job, int unit) {
    return job.weights + static_cast<ptrdiff_t>(unit) * Sizes(*job.frame).groups * job.weights_stride;
}

// Products of some query heads with `some` keys that follow each other, sixteen at most; of the places after them the last
// one again. They go to `out`, of each head `stride` apart. `kSize` is D where it is known; each key has queries of its own
// unless all have the `same`.
template <int heads, int kSize, bool same>
inline void sixteen_keys(const float *const *queries, const float *keys, int some, int size, Floats by, float *out,
                         ptrdiff_t stride) {
    constexpr int together = at_once(heads);
    if (kSize) size = kSize;
    const float *const all_ask = queries[0];
    const auto key_at = [&](int i) { return keys + static_cast<ptrdiff_t>(i < some ? i : some - 1) * size; };
    constexpr bool in_quarters = kQuarters && together % 4 == 0;
    Floats all[heads][in_quarters ? 4 : 16];
    constexpr int parts = kSize / 16;
    constexpr bool stay = same && parts && heads * parts <= kSumsAtOnce;  // the queries, in registers
    Floats asked[heads][stay ? parts : 1];
    if constexpr (stay)
        for (int h = 0; h < heads; ++h)
            for (int part = 0; part < parts; ++part) asked[h][part] = load(all_ask + h * size + 16 * part);
    for (int first = 0; first < 16; first += together) {
        Floats products[together][heads];
        for (auto &key : products)
            for (Floats &one : key) one = splat(0.0f);
        if constexpr (stay || !same) {  // key after key: the processor sees what will be read next
            for (int i = 0; i < together; ++i)
                for (int d = 0; d < size; d += 16) {
                    const Floats key = load(key_at(first + i) + d);
                    for (int h = 0; h < heads; ++h)
                        products[i][h] = fma(stay ? asked[h][stay ? d / 16 : 0] : load(queries[first + i] + h * size + d),
                                         key, products[i][h]);
                }
        } else {  // some keys at once: a query is loaded once for them
            for (int d = 0; d < size; d += 16) {
                for (int h = 0; h < heads; ++h) asked[h][0] = load(all_ask + h * size + d);
                for (int i = 0; i < together; ++i) {
                    const Floats key = load(key_at(first + i) + d);
                    for (int h = 0; h < heads; ++h) products[i][h] = fma(asked[h][0], key, products[i][h]);
                }
            }
        }
        for (int h = 0; h < heads; ++h)
            if constexpr (in_quarters)
                for (int i = 0; i < together; i += 4)
                    all[h][(first + i) / 4] =
                        quarters(products[i][h], products[i + 1][h], products[i + 2][h], products[i + 3][h]);
            else
                for (int i = 0; i < together; ++i) all[h][first + i] = products[i][h];
    }
    for (int h = 0; h < heads; ++h)
        if constexpr (in_quarters)
            store(out + h * stride, mul(sums_of_quarters(all[h][0], all[h][1], all[h][2], all[h][3]), by));
        else
            store(out + h * stride, mul(sums(all[h]), by));
}

template <int heads, bool same>
inline void sixteen_keys(const float *const *queries, const float *keys, int some, int size, Floats by, float *out,
                         ptrdiff_t stride) {
    if (size == 64)
        sixteen_keys<heads, 64, same>(queries, keys, some, size, by, out, stride);
    else if (size == 128)
        sixteen_keys<heads, 128, same>(queries, keys, some, size, by, out, stride);
    else
        sixteen_keys<heads, 0, same>(queries, keys, some, size, by, out, stride);
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
                int start, int end, float *far, float *weights) {
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
    const Floats scaling = splat(of.scaling);
    for (int s = start; s < end; s += 16) {
        const int some = slots.used - s < 16 ? slots.used - s : 16;
        const float *keys = held.keys(s, some), *asked[16];
        bool far_ones = false;
        for (int i = 0; i < 16; ++i) {
            const int at = i < some ? i : some - 1;
            const bool is_far = clamps && slots.clamped[first + s + at];
            far_ones |= is_far;
            asked[i] = is_far ? far : queries;
        }
        by_heads(of.groups, [&](auto heads, int g) {
            if (!far_ones) {
                const float *const all_ask = queries + g * of.size;
                sixteen_keys<heads, true>(&all_ask, keys, some, of.size, scaling, weights + g * stride + s, stride);
                return;
            }
            const float *of_these[16];
            for (int i = 0; i < 16; ++i) of_these[i] = asked[i] + g * of.size;
            sixteen_keys<heads, false>(of_these, keys, some, of.size, scaling, weights + g * stride + s, stride);
        });
    }
    const float cap = job.frame->attention_cap;
    for (int g = 0; cap != 0 && g < of.groups; ++g)
        for (int s = start; s < end; s += 16) store(weights + g * stride + s, capped(load(weights + g * stride + s), cap));
    const int row = job.rows[token];
    // Slots at positions from here on are seen: not empty ones, at -1, nor what is out of the layer's window.
    const int32_t seen_from = layer.sees && step.positions[row] >= layer.sees ? step.positions[row] - layer.sees + 1 : 0;
    for (int s = start; s < end; ++s) {
        if (s < slots.used && slots.positions[first + s] >= seen_from) continue;
        for (int g = 0; g < of.groups; ++g) weights[g * stride + s] = -3e38f;
    }
}

// The weights of a query head become probabilities, beside that of a sink if it has one.
inline void softmax(float *weights, int padded, const float *sink = nullptr) {
    Floats most = load(weights);
    for (int s = 16; s < padded; s += 16) most = max(most, load(weights + s));
    const Floats alone = splat(sink ? *sink : -3e38f), top = splat(highest(max(most, alone)));
    Floats all = splat(0.0f);
    for (int s = 0; s < padded; s += 16) {
        const Floats e = exp_of_negative(sub(load(weights + s), top));
        store(weights + s, e);
        all = add(all, e);
    }
    float rest[16];
    store(rest, exp_of_negative(sub(alone, top)));
    const Floats by = splat(1.0f / (sum(all) + (sink ? rest[0] : 0.0f)));
    for (int s = 0; s < padded; s += 16) store(weights + s, mul(load(weights + s), by));
}

inline const float *sink_of(const h2o_layer &layer, int head) { return layer.sinks ? layer.sinks + head : nullptr; }

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

// Weighted sums of values for some query heads in up to kUnpacked slots, up to 64 components at a time; added to
// `out` [G, D] if this is not the `start`. Weights of a head stand `stride` apart.
inline void weigh_values(int groups, int size, const float *weights, int stride, const float *values, int some, float *out,
                         bool start) {
    by_heads(groups, [&](auto heads, int g) {
        constexpr int parts = at_once(heads) < 4 ? at_once(heads) : 4;
        const float *mine = weights + static_cast<ptrdiff_t>(g) * stride;
        float *to = out + g * size;
        int i = 0;
        for (; i + 16 * parts <= size; i += 16 * parts)
            weighted<heads, parts>(mine, stride, values + i, some, size, to + i, start);
        for (; i < size; i += 16) weighted<heads, 1>(mine, stride, values + i, some, size, to + i, start);
    });
}

// Weighted sums of values for all queries of a KV head, kUnpacked slots at a time.
inline void answer(Job &job, const h2o_layer &layer, const h2o_slots &slots, const Held &held, int token, int head,
                   const float *weights) {
    const Sizes of(*job.frame);
    float *out = job.attended + static_cast<ptrdiff_t>(token) * layer.out.columns + head * of.groups * of.size;
    for (int s = 0; s < slots.used; s += kUnpacked) {
        const int some = slots.used - s < kUnpacked ? slots.used - s : kUnpacked;
        weigh_values(of.groups, of.size, weights + s, job.weights_stride, held.values(s, some), some, out, s == 0);
    }
}

// Adds the probabilities of a KV head's queries to its slots' scores. `kGroups` is G where it is known.
template <int kGroups>
inline void add_scores(const Job &job, const h2o_slots &slots, int token, int head, const float *__restrict weights) {
    const h2o_step &step = *job.step;
    const int groups = kGroups ? kGroups : Sizes(*job.frame).groups;
    const ptrdiff_t first = first_slot(job, slots, token, head), stride = job.weights_stride;
    float *__restrict score = slots.score + first * groups;
    const float decay_factor = step.decay_factor;
    for (int s = 0; s < slots.used; ++s)
        for (int g = 0; g < groups; ++g)
            score[s * groups + g] = fma(score[s * groups + g], decay_factor, weights[g * stride + s]);
    if (!slots.lately) return;
    const float lately_decay = step.lately_decay;
    const float share = (1.0f - lately_decay) / static_cast<float>(groups);
    float *__restrict lately = slots.lately + first;
    for (int s = 0; s < slots.used; ++s) {
        float received = 0;
        for (int g = 0; g < groups; ++g) received += weights[g * stride + s];
        lately[s] = fma(lately[s], lately_decay, received * share);
    }
}

inline void add_scores(const Job &job, const h2o_slots &slots, int token, int head, const float *weights) {
    switch (Sizes(*job.frame).groups) {
        case 1: return add_scores<1>(job, slots, token, head, weights);
        case 2: return add_scores<2>(job, slots, token, head, weights);
        case 3: return add_scores<3>(job, slots, token, head, weights);
        case 4: return add_scores<4>(job, slots, token, head, weights);
        case 8: return add_scores<8>(job, slots, token, head, weights);
        default: return add_scores<0>(job, slots, token, head, weights);
    }
}

// KV heads of all rows for each thread, from which on it takes one of them as a whole.
constexpr int kHeadsEach = 4;

// Tokens go into slots, and their queries attend to these: probabilities into job.weights, output into job.attended,
// scores into slots. Where there are enough KV heads a thread computes all of one: what it writes it reads from its own
// cache, not from another's. Else in shares so small that an odd number of KV heads leaves no thread waiting for long.
inline void attend(Job &job, int thread, const h2o_layer &layer, const h2o_slots &slots) {
    const Sizes of(*job.frame);
    const int padded = (slots.used + 15) & ~15, all = job.tokens * of.kv_heads;
    const int runs = (padded + kSlotsAsked - 1) / kSlotsAsked;
    float *far = Own(job, thread).floats;
    const auto held = [&](int token, int head) { return Held(job, thread, layer, slots, token, head); };
    if (all >= kHeadsEach * job.team->threads) {
        for (int unit; (unit = take(job.team->next, 1, all)) >= 0;) {
            const int token = unit / of.kv_heads, head = unit % of.kv_heads;
            float *weights = weights_of(job, kHeadsEach * thread);  // the same for every KV head, far from another thread's
            write_slot(job, layer, slots, token, head);
            ask(job, layer, slots, held(token, head), token, head, 0, padded, far, weights);
            for (int g = 0; g < of.groups; ++g)
                softmax(weights + g * job.weights_stride, padded, sink_of(layer, head * of.groups + g));
            answer(job, layer, slots, held(token, head), token, head, weights);
            add_scores(job, slots, token, head, weights);
        }
        meet(*job.team);
        return;
    }
    for (int unit; (unit = take(job.team->next, 1, all)) >= 0;)
        write_slot(job, layer, slots, unit / of.kv_heads, unit % of.kv_heads);
    meet(*job.team);
    for (int unit; (unit = take(job.team->next, 1, all * runs)) >= 0;) {
        const int token = unit / runs / of.kv_heads, head = unit / runs % of.kv_heads;
        const int start = unit % runs * kSlotsAsked, end = start + kSlotsAsked;
        ask(job, layer, slots, held(token, head), token, head, start, end < padded ? end : padded, far,
            weights_of(job, unit / runs));
    }
    meet(*job.team);
    for (int unit; (unit = take(job.team->next, 1, all * of.groups)) >= 0;)
        softmax(job.weights + static_cast<ptrdiff_t>(unit) * job.weights_stride, padded, sink_of(layer, unit % of.heads));
    meet(*job.team);
    for (int unit; (unit = take(job.team->next, 1, 2 * all)) >= 0;) {  // outputs, then scores, which take less
        const int token = unit % all / of.kv_heads, head = unit % all % of.kv_heads;
        if (unit < all)
            answer(job, layer, slots, held(token, head), token, head, weights_of(job, unit));
        else
            add_scores(job, slots, token, head, weights_of(job, unit - all));
    }
    meet(*job.team);
}

}  // namespace
