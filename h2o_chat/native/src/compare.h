// How the kept keys of a KV head stand among one another: h2o_chat/policies/novelty.py, which says what it is for.

#pragma once

#include <cstring>

#include "attention.h"

namespace {

// A thread's room.
struct Compared {
    float *units;      // [stride, D] keys before RoPE, of length 1; an empty slot is 0
    float *mean;       // [D] their sum
    float *block;      // [D, 16] sixteen fresh keys, components side by side
    float *found;      // [stride] distinctness; then the cosine of each key to the nearest other one, or 0
    int32_t *fresh;    // [stride] slots whose keys are compared with all others
    int32_t *nearest;  // [stride] to each key the slot of the nearest other one; -1: never compared

    Compared(const Comparison &of, int thread) : units(of.own + of.own_floats * thread) {
        mean = units + static_cast<ptrdiff_t>(of.stride) * of.size;
        block = mean + of.size;
        found = block + 16 * of.size;
        fresh = reinterpret_cast<int32_t *>(found + of.stride);
        nearest = fresh + of.stride;
    }
};

// Keys of one KV head from slot `first` on, before RoPE, of length 1.
inline void unit_keys(const Comparison &of, int layer, ptrdiff_t first, const int32_t *positions, const int32_t *index,
                      const Compared &own) {
    const h2o_rope *rope = of.ropes[layer];
    for (int i = 0; i < of.size; ++i) own.mean[i] = 0;
    for (int s = 0; s < of.stride; ++s) {
        float *unit = own.units + static_cast<ptrdiff_t>(s) * of.size;
        if (s >= of.slots || positions[s] < 0) {
            std::memset(unit, 0, sizeof(float) * of.size);
            continue;
        }
        const char *stored = static_cast<const char *>(of.keys) + (first + s) * of.key_bytes;
        const float *from = of.bits ? unit : reinterpret_cast<const float *>(stored);
        prefetch(stored + 16 * of.key_bytes);
        if (of.bits) from_bytes(reinterpret_cast<const uint8_t *>(stored), of.bits, of.size, unit);
        if (rope && index) {
            const ptrdiff_t at = (rope - of.first_rope) * of.table_pairs;
            turn_by(from, -index[s], of.cosines + at, of.sines + at, of.most_pairs, rope->pairs, of.size, unit);
            from = unit;
        }
        const float length = __builtin_sqrtf(dot(from, from, of.size));
        const Floats by = splat(1.0f / (length > 1e-12f ? length : 1e-12f));
        for (int i = 0; i < of.size; i += 16) {
            const Floats part = mul(load(from + i), by);
            store(unit + i, part);
            store(own.mean + i, add(load(own.mean + i), part));
        }
    }
}

// Minus the cosine of each key to the mean of all.
inline void distinctness(const Comparison &of, const Compared &own) {
    const float length = __builtin_sqrtf(dot(own.mean, own.mean, of.size));
    const Floats by = splat(-1.0f / (length > 1e-12f ? length : 1e-12f));
    for (int s = 0; s < of.stride; s += 16) {
        const float *const mean = own.mean;
        sixteen_keys<1, true>(&mean, own.units + static_cast<ptrdiff_t>(s) * of.size, 16, of.size, by, own.found + s, 16);
    }
}

// Which slots hold a key that was never compared, or whose nearest one has left: in its slot is a key that was never
// compared, or none. Their number.
inline int fresh_keys(const Comparison &of, const int32_t *positions, const Compared &own) {
    const int32_t *nearest = own.nearest;
    int count = 0;
    for (int s = 0; s < of.slots; ++s) {
        const bool known = nearest[s] >= 0 && nearest[s] < of.slots && nearest[nearest[s]] >= 0;
        if (positions[s] >= 0 && !known) own.fresh[count++] = s;
    }
    return count;
}

// Sixteen fresh keys at most, which are compared with others together.
struct FreshKeys {
    const Compared &own;
    const int32_t *slots;  // where they are, in order
    int count;
    Floats most, where;    // of each the cosine to the nearest one, and its slot

    FreshKeys(const Comparison &of, const Compared &own, int first, int count)
        : own(own), slots(own.fresh + first), count(count) {
        float found[16] = {}, nearest[16] = {};
        for (int i = 0; i < 16; ++i) {
            if (i < count) {
                found[i] = own.found[slots[i]];
                nearest[i] = static_cast<float>(own.nearest[slots[i]]);
            }
            for (int d = 0; d < of.size; ++d)
                own.block[16 * d + i] = i < count ? own.units[static_cast<ptrdiff_t>(slots[i]) * of.size + d] : 0;
        }
        most = load(found);
        where = load(nearest);
    }

    // The key of a slot has these cosines with them. It may be their nearest one, one of them may be its own.
    void meet(int slot, Floats cosines) {
        if (slots[0] <= slot && slot <= slots[count - 1]) cosines = without_itself(slot, cosines);
        const Floats is_nearer = from(sub(cosines, most), kTiny, splat(1.0f));
        where = fma(is_nearer, sub(splat(static_cast<float>(slot)), where), where);
        most = max(most, cosines);
        if (!any_above(cosines, splat(own.found[slot]))) return;
        const float best = own.found[slot] = highest(cosines);
        float all[16];
        store(all, cosines);
        for (int i = count - 1; i >= 0; --i)
            if (all[i] == best) own.nearest[slot] = slots[i];
    }

    Floats without_itself(int slot, Floats cosines) const {
        float all[16];
        store(all, cosines);
        for (int i = 0; i < count; ++i)
            if (slots[i] == slot) all[i] = 0;
        return load(all);
    }

    void tell() const {
        float found[16], nearest[16];
        store(found, most);
        store(nearest, where);
        for (int i = 0; i < count; ++i) {
            own.found[slots[i]] = found[i];
            own.nearest[slots[i]] = static_cast<int32_t>(nearest[i]);
        }
    }
};

// Brings `found` and `nearest` up to date; a key that all others point away from is its own nearest one. Only fresh keys
// are compared with all others, each pair of them once.
inline void novelty(const Comparison &of, const int32_t *positions, const Compared &own) {
    const int size = of.size, count = fresh_keys(of, positions, own);
    for (int i = 0; i < count; ++i) {
        own.found[own.fresh[i]] = 0;
        own.nearest[own.fresh[i]] = own.fresh[i];
    }
    int known = 0;  // the first slot in use that is not fresh
    for (int i = 0; known < of.slots && (positions[known] < 0 || (i < count && own.fresh[i] == known)); ++known)
        i += positions[known] >= 0;
    for (int first = 0; first < count; first += 16) {
        FreshKeys fresh(of, own, first, count - first < 16 ? count - first : 16);
        // Keys before were compared with these already, if all are fresh.
        const int before = (known < fresh.slots[0] ? known : fresh.slots[0]) & ~15;
        for (int s = before; s < of.stride; s += 16) {
            Floats cosines[16][1];
            tile_products(own.units + static_cast<ptrdiff_t>(s) * size, own.block, size, cosines);
            for (int i = 0; i < 16; ++i) fresh.meet(s + i, cosines[i][0]);
        }
        fresh.tell();
    }
}

void compare(Job &job, int thread) {
    const Comparison &of = *job.comparison;
    const Compared own(of, thread);
    for (int unit; (unit = take(job.team->next, 1, of.layers * of.rows * of.heads)) >= 0;) {
        const int layer = unit / (of.rows * of.heads), here = unit % (of.rows * of.heads);
        const ptrdiff_t first = static_cast<ptrdiff_t>(unit) * of.slots;
        const ptrdiff_t first_key = (static_cast<ptrdiff_t>(layer) * of.key_rows * of.heads + here) * of.slots;
        const int32_t *index = of.index ? of.index + first : nullptr, *positions = of.positions + first;
        unit_keys(of, layer, first_key, positions, index, own);
        distinctness(of, own);
        std::memcpy(of.distinctness + first, own.found, sizeof(float) * of.slots);
        if (!of.novelty) continue;
        for (int s = 0; s < of.stride; ++s) {
            const bool known = of.nearest && s < of.slots && positions[s] >= 0;
            own.found[s] = known ? 0.0f - of.novelty[first + s] : 0.0f;
            own.nearest[s] = known ? of.nearest[first + s] : -1;
        }
        novelty(of, positions, own);
        for (int s = 0; s < of.slots; ++s) of.novelty[first + s] = 0.0f - own.found[s];
        if (of.nearest) std::memcpy(of.nearest + first, own.nearest, sizeof(int32_t) * of.slots);
    }
    meet(*job.team);
}

}  // namespace
