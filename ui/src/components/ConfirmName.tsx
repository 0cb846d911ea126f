import { TextInput } from './TextInput';

// ConfirmName asks people to type what they are about to lose.
export function ConfirmName({ wanted, value, onChange }: { wanted: string; value: string; onChange: (value: string) => void }) {
  return <TextInput label={`Type “${wanted}” to confirm`} value={value} onChange={onChange} takesFocus />;
}

// confirmation is what has to be typed for an act on volumes: the name of the only one, or how many there are.
export function confirmation(act: string, names: readonly string[]): string {
  return names.length === 1 ? (names[0] ?? '') : `${act} ${names.length} volumes`;
}
