// Tone says how urgent a state is. A badge has one shape and one colour for each tone.
export type Tone = 'good' | 'warn' | 'bad' | 'busy' | 'idle';
