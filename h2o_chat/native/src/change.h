// How far the output of a KV head's queries would move without each slot: output_change_of_heads in
// h2o_chat/policies/policies.py, which says what it is for.

#pragma once

#include "attention.h"

namespace {

// A thread's room.
struct Changed {
    float *share;    // [G, stride] each slot's share of what a query head gave
    float *crossed;  // [G, stride] value x output
    float *lengths;  // [stride] squares of the values' lengths
    float *sums;     // [stride] of fourth powers
    float *output;   // [G, D] what a query head attends to
    float *values;   // [slots, D], where they are held in bytes

    Changed(const Change &of, int thread) : share(of.own + of.own_floats * thread) {
        crossed = share + of.groups * of.stride;
        lengths = crossed + of.groups * of.stride;
        sums = lengths + of.stride;
        output = sums + of.stride;
        values = output + of.output;
    }
};

// Scores [S, G] of one KV head as shares of each query head's whole.
inline void shares(const Change &of, const float *score, float *share) {
    for (int g = 0; g < of.groups; ++g) {
        float *mine = share + g * of.stride;
        for (int s = 0; s < of.stride; ++s) mine[s] = s < of.slots ? score[s * of.groups + g] : 0;
        Floats all = splat(0.0f);
        for (int s = 0; s < of.stride; s += 16) all = add(all, load(mine + s));
        const float whole = sum(all);
        const Floats by = splat(whole > 1.17549435e-38f ? whole : 1.17549435e-38f);  // the smallest normal number
        for (int s = 0; s < of.stride; s += 16) store(mine + s, div(load(mine + s), by));
    }
}

// Values x what each query head attends to, and their own squares: sixteen slots after the other.
inline void products_with_values(const Change &of, const float *values, const Changed &own) {
    const Floats one = splat(1.0f);
    for (int s = 0; s < of.slots; s += 16) {
        const float *some = values + static_cast<ptrdiff_t>(s) * of.size;
        const int count = of.slots - s < 16 ? of.slots - s : 16;
        for (int i = 0; i < count; ++i) {
            const float *value = some + static_cast<ptrdiff_t>(i) * of.size;
            own.lengths[s + i] = dot(value, value, of.size);
        }
        by_heads(of.groups, [&](auto heads, int g) {
            const float *const all_ask = own.output + g * of.size;
            sixteen_keys<heads, true>(&all_ask, some, count, of.size, one, own.crossed + g * of.stride + s, of.stride);
        });
    }
}

// share / (1 - share) x |value - output| of each query head, |v - o|^2 multiplied out; of these the fourth root of the sum
// of fourth powers.
inline void changes(const Change &of, const Changed &own, float *out) {
    for (int s = 0; s < of.stride; ++s) own.sums[s] = 0;
    for (int s = of.slots; s < of.stride; ++s) own.lengths[s] = 0;
    for (int g = 0; g < of.groups; ++g) {
        const float *__restrict share = own.share + g * of.stride, *__restrict crossed = own.crossed + g * of.stride;
        const float square = dot(own.output + g * of.size, own.output + g * of.size, of.size);
        float *__restrict sums = own.sums;
        for (int s = 0; s < of.stride; ++s) {
            const float apart = (own.lengths[s] + square) - 2.0f * crossed[s];
            const float rest = 1.0f - share[s];
            const float moved = share[s] / (rest > 1.1920929e-7f ? rest : 1.1920929e-7f) *
                                __builtin_sqrtf(apart < 0 ? 0 : apart);  // NaN stays NaN
            const float squared = moved * moved;
            sums[s] = fma(squared, squared, sums[s]);
        }
    }
    for (int s = 0; s < of.slots; ++s) out[s] = __builtin_sqrtf(__builtin_sqrtf(own.sums[s]));
}

// Values of one KV head from slot `first` on: where they lie, or unpacked into the thread's room.
inline const float *values_of(const Change &of, ptrdiff_t first, const Changed &own) {
    if (!of.bits) return static_cast<const float *>(of.values) + first * of.size;
    const ptrdiff_t bytes = of.size * of.bits / 8 + 4;
    const uint8_t *stored = static_cast<const uint8_t *>(of.values) + first * bytes;
    for (int s = 0; s < of.slots; ++s) from_bytes(stored + s * bytes, of.bits, of.size, own.values + s * of.size);
    return own.values;
}

void change(Job &job, int thread) {
    const Change &of = *job.change;
    const Changed own(of, thread);
    for (int unit; (unit = take(job.team->next, 1, of.layers * of.rows * of.heads)) >= 0;) {
        const int layer = unit / (of.rows * of.heads), here = unit % (of.rows * of.heads);
        const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * of.slots;
        const ptrdiff_t first_value = (static_cast<ptrdiff_t>(layer) * of.value_rows * of.heads + here) * of.slots;
        const float *values = values_of(of, first_value, own);
        shares(of, of.score + first * of.groups, own.share);
        for (int s = 0; s < of.slots; s += kUnpacked)
            weigh_values(of.groups, of.size, own.share + s, of.stride, values + static_cast<ptrdiff_t>(s) * of.size,
                         of.slots - s < kUnpacked ? of.slots - s : kUnpacked, own.output, s == 0);
        products_with_values(of, values, own);
        changes(of, own, of.changes + first);
    }
    meet(*job.team);
}

}  // namespace
