import { TextInput } from './TextInput';

// ConfirmName asks the user to type the name of the object that would be lost.
export function ConfirmName({ wanted, value, onChange }: { wanted: string; value: string; onChange: (value: string) => void }) {
  return <TextInput label={`Type “${wanted}” to confirm`} value={value} onChange={onChange} takesFocus />;
}

// confirmation returns the text that the user must type before an action on volumes: the name of a single volume, or
// the action and the number of volumes.
export function confirmation(act: string, names: readonly string[]): string {
  return names.length === 1 ? (names[0] ?? '') : `${act} ${names.length} volumes`;
}
