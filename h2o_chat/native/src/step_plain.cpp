#include "lanes_plain.h"
#include "step.h"
#include "change.h"
#include "compare.h"
#include "prompt.h"

const Form form_plain = {decode, embed, before, after, head, compare, change, attend_pass};
